package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/request"
)

// The page offers the requests that the daemon accepts, and states its limits.
func TestPageRequestsMatchTheDaemon(t *testing.T) {
	text := get(Handlers()["/requests.js"], "").Body.String()
	var kinds []request.Kind
	for _, found := range regexp.MustCompile(`(?m)^  '([a-z-]+)': \{ name: `).FindAllStringSubmatch(text, -1) {
		kinds = append(kinds, request.Kind(found[1]))
	}
	slices.Sort(kinds)
	if want := request.Kinds(); !slices.Equal(kinds, want) {
		t.Errorf("the page offers %v, the daemon accepts %v", kinds, want)
	}
	for _, want := range []string{
		fmt.Sprintf("maxlength: %d,", request.MaxReason), fmt.Sprintf("(%.0f min by default)", request.StepDownFor.Minutes()),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
}
