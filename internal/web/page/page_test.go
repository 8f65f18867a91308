package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/operator/request"
)

func get(serve http.HandlerFunc, etag string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	rec := httptest.NewRecorder()
	serve(rec, r)
	return rec
}

func TestEveryFileIsServedSafely(t *testing.T) {
	all := Handlers()
	for _, path := range []string{"/", "/page.css", "/page.js", "/icon.svg"} {
		if all[path] == nil {
			t.Errorf("%s is not served", path)
		}
	}
	for path, serve := range all {
		rec := get(serve, "")
		h := rec.Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Content-Security-Policy": policy,
		} {
			if h.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", path, name, h.Get(name), want)
			}
		}
		if rec.Code != http.StatusOK || rec.Body.Len() == 0 || h.Get("Content-Type") == "" {
			t.Errorf("%s: %d, %d bytes of %q", path, rec.Code, rec.Body.Len(), h.Get("Content-Type"))
		}
		if again := get(serve, h.Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s, cached: %d, %d bytes", path, again.Code, again.Body.Len())
		}
	}
}

// forbidden matches code that could turn a name in ZooKeeper into markup, and code that the policy forbids.
var forbidden = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\beval\b|new Function|<script>|<style|\sstyle=|\son[a-z]+=|//[a-z]`)

func TestFilesAreSelfContainedAndAddNoMarkup(t *testing.T) {
	all := Handlers()
	refers := regexp.MustCompile(`(?:href|src)="([^"#]+)"|from '\./([^']+)'`)
	named := map[string]bool{"/": true}
	for path, serve := range all {
		text := strings.ReplaceAll(get(serve, "").Body.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
		if bad := forbidden.FindString(text); bad != "" {
			t.Errorf("%s has %q", path, bad)
		}
		for _, m := range refers.FindAllStringSubmatch(text, -1) {
			name := "/" + m[1] + m[2]
			named[name] = true
			if all[name] == nil {
				t.Errorf("%s refers to %s, which does not exist", path, name)
			}
		}
	}
	for path := range all {
		if !named[path] {
			t.Errorf("nothing refers to %s", path)
		}
	}
}

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
