package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/request"
)

// The page's requests are those that the daemon takes, within its limits.
func TestRequestsAreTheDaemons(t *testing.T) {
	text := get(Handlers()["/requests.js"], "").Body.String()
	var kinds []request.Kind
	for _, found := range regexp.MustCompile(`(?m)^  '([a-z-]+)': \{ name: `).FindAllStringSubmatch(text, -1) {
		kinds = append(kinds, request.Kind(found[1]))
	}
	slices.Sort(kinds)
	if want := request.Kinds(); !slices.Equal(kinds, want) {
		t.Errorf("the page gives %v, the daemon takes %v", kinds, want)
	}
	for _, want := range []string{
		fmt.Sprintf("maxlength: %d,", request.MaxReason), fmt.Sprintf("(%.0f min if nothing is said)", request.StepDownFor.Minutes()),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
