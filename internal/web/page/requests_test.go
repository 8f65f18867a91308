package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/operator/request"
)

// The page offers the requests that the daemon accepts, and states its limits.
func TestPageRequestsMatchTheDaemon(t *testing.T) {
	text := get(Handlers()["/requests.js"], "").Body.String()
	var kinds []request.Kind
	for _, found := range regexp.MustCompile(`(?m)^  '([a-z-]+)': \{ name: `).FindAllStringSubmatch(text, -1) {
		kinds = append(kinds, request.Kind(found[1]))
	}
	slices.Sort(kinds)
	if !slices.Equal(kinds, request.Kinds()) {
		t.Errorf("the page offers %v, the daemon accepts %v", kinds, request.Kinds())
	}
	for _, want := range []string{
		fmt.Sprintf("maxlength: %d,", request.MaxReason),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
}

// Requests that concern one leader are submitted for the slot, the others for the whole group.
func TestPageSubmitsRequestsForTheSlot(t *testing.T) {
	text := get(Handlers()["/requests.js"], "").Body.String()
	for _, kind := range request.Kinds() {
		line := regexp.MustCompile(`(?m)^  '` + string(kind) + `': .*$`).FindString(text)
		if got := strings.Contains(line, "ofSlot: true"); got != kind.OfSlot() {
			t.Errorf("%s is a request for a slot: %t, want %t", kind, got, kind.OfSlot())
		}
	}
}
