package web

import (
	"net/http"
	"strings"
	"testing"

	"zkelectd/internal/operator/request"
)

// A slot has its own paths. Requests that concern all slots name the group alone.
func TestEachSlotHasItsOwnPaths(t *testing.T) {
	handler := New(severalGroups("billing", "ingest/0", "ingest/1", "ingest/10"))
	for path, want := range map[string]string{
		"/v1/groups/ingest/1/leader": "ingest/1", "/v1/groups/ingest%2F1/leader": "ingest/1", "/v1/groups/ingest/10/status": "ingest/10",
		"/v1/groups/ingest/0/explain": "ingest/0", "/v1/groups/ingest/0/readyz": "ingest/0", "/v1/groups/billing/status": "billing",
	} {
		if code, body := responseOf(t, handler, "GET", path); code != 200 || body["group"] != want {
			t.Errorf("%s: %d %v", path, code, body)
		}
	}
	for path, want := range map[string]int{
		"/v1/groups/ingest/2/leader": 404, "/v1/groups/ingest/01/leader": 404, "/v1/groups/billing/0/leader": 404, "/v1/groups/ingest/0/1/leader": 404,
		"/v1/groups/ingest/status": 400, "/v1/groups/ingest/leader": 400, "/v1/groups/ingest/0": 404, "/v1/groups/inges/status": 404,
	} {
		code, body := responseOf(t, handler, "GET", path)
		if text, _ := body["error"].(string); code != want || code == 400 && !strings.Contains(text, "name one, as in /v1/groups/ingest/0;") {
			t.Errorf("%s: %d %v, want %d", path, code, body, want)
		}
	}
}

// Each kind of request is accepted either for a slot or for the whole group.
func TestRequestsOfSlotsAndGroups(t *testing.T) {
	for _, kind := range request.Kinds() {
		for path, ofSlot := range map[string]bool{"/v1/groups/ingest/1/": true, "/v1/groups/ingest%2F1/": true, "/v1/groups/ingest/": false} {
			opt := severalGroups("ingest/0", "ingest/1")
			opt.Authenticator = authenticatorOf(t, "ann:"+annsToken+" ingest")
			rec := sendRequestTo(New(opt), path+string(kind), shortestBody(kind))
			want := http.StatusBadRequest
			if kind.OfSlot() == ofSlot {
				want = http.StatusOK
			}
			name := `"group":"ingest"`
			if ofSlot {
				name = `"group":"ingest/1"`
			}
			if rec.Code != want || want == http.StatusOK && !strings.Contains(rec.Body.String(), name) {
				t.Errorf("%s%s: %d %s, want %d", path, kind, rec.Code, rec.Body, want)
			}
		}
	}
}
