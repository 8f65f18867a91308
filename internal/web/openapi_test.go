package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
)

// openapi has the parts of docs/openapi.yaml that the tests use.
type openapi struct {
	Paths map[string]map[string]struct {
		Parameters  []struct{ Name, In string }
		RequestBody struct {
			Content map[string]struct {
				Schema struct{ Properties map[string]any }
			}
		} `yaml:"requestBody"`
		Responses map[string]response
	}
	Components struct {
		Responses map[string]response
		Schemas   map[string]struct {
			Required   []string
			Properties map[string]any
		}
	}
}

type response struct {
	Ref         string `yaml:"$ref"`
	Description string
	Content     map[string]struct {
		Schema struct {
			Ref   string `yaml:"$ref"`
			AnyOf []struct {
				Ref string `yaml:"$ref"`
			} `yaml:"anyOf"`
		}
	}
}

func description(t *testing.T) openapi {
	t.Helper()
	data, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc openapi
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func (d openapi) resolve(r response) response {
	if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
		return d.Components.Responses[name]
	}
	return r
}

// schemas returns the schemas that a response may have.
func (r response) schemas(media string) []string {
	s := r.Content[media].Schema
	var names []string
	for _, ref := range append(s.AnyOf, struct {
		Ref string `yaml:"$ref"`
	}{s.Ref}) {
		if name, ok := strings.CutPrefix(ref.Ref, "#/components/schemas/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// allResponses returns every response that the paths can give, by method, path and status.
func allResponses(t *testing.T) map[string]*http.Response {
	t.Helper()
	late := optionsWithGroup()
	only(late).View = stuck
	silent := standby()
	silent.Connected = false
	other := optionsWithGroup()
	heir := standby()
	heir.Heir, heir.IsHeir = "a", true
	only(other).View = func() status.Daemon { return heir }
	down := optionsWithGroup()
	only(down).View = func() status.Daemon { return silent }
	full := newAPI(optionsWithGroup())
	full.groupQuota, full.streamQuota = newQuota(0, 0), newQuota(0, 0)
	handlers := map[string]http.Handler{"leader": New(optionsWithGroup()), "stuck": New(late), "standby": New(other), "down": New(down), "full": full.handler(), "ignorant": New(optionsWithoutZooKeeper()), "several": New(severalGroups("x", "y"))}
	got := make(map[string]*http.Response)
	for key, resp := range allSubmitResponses(t) {
		got[key] = resp
	}
	maps.Copy(got, leaseResponses())
	maps.Copy(got, valueResponses())
	for _, r := range newAPI(optionsWithGroup()).routes() {
		for name, handler := range handlers {
			for _, method := range slices.DeleteFunc(slices.Clone(r.methods), func(m string) bool { return m == "POST" }) {
				for _, query := range []string{"", "?n=1", "?n=x", "?term=1", "?term=99", "?term=x", "?members=1", "?request=resume"} {
					if strings.HasSuffix(r.path, "/events") && method == "GET" && name != "full" && name != "several" {
						continue // a stream: HEAD is used instead
					}
					rec := serveRequest(handler, method, strings.Replace(r.path, "{group}", "c", 1)+query)
					got[fmt.Sprintf("%s %s %d %s%s", method, r.path, rec.Code, name, query)] = rec.Result()
				}
			}
		}
	}
	return got
}

// docs/openapi.yaml follows the specification of OpenAPI, so that tools can read it.
func TestOpenAPIIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHandlersMatchOpenAPI(t *testing.T) {
	doc := description(t)
	documented := make(map[string]bool)
	for path, operations := range doc.Paths {
		for method, o := range operations {
			for code, r := range o.Responses {
				if doc.resolve(r).Description == "" {
					t.Errorf("%s %s %s is not documented", method, path, code)
				}
				documented[strings.ToUpper(method)+" "+path+" "+code] = true
			}
		}
	}
	// Other tests cover responses that need too many concurrent requests, and event streams.
	produced := map[string]bool{"GET /metrics 503": true, "HEAD /metrics 503": true, "GET /v1/events 200": true, "GET " + groupPath("/v1/events") + " 200": true}
	for key, resp := range allResponses(t) {
		f := strings.Fields(key)
		method, path, code := f[0], f[1], f[2]
		produced[method+" "+path+" "+code] = true
		r := doc.resolve(doc.Paths[path][strings.ToLower(method)].Responses[code])
		media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		if _, ok := r.Content[media]; (method == "GET" || method == "POST" || method == "PUT") && !ok {
			t.Errorf("%s is %s, which is not documented", key, media)
		}
		if (method == "GET" || method == "POST" || method == "PUT") && media == "application/json" {
			doc.matches(t, key, resp, r.schemas(media))
		}
	}
	for _, missing := range slices.Sorted(maps.Keys(documented)) {
		if !produced[missing] {
			t.Errorf("documented, but never returned: %s", missing)
		}
	}
	for _, extra := range slices.Sorted(maps.Keys(produced)) {
		if !documented[extra] {
			t.Errorf("returned, but not documented: %s", extra)
		}
	}
}

// matches checks that a response has everything that one of the schemas requires, and nothing that it does not describe.
func (d openapi) matches(t *testing.T, key string, resp *http.Response, schemas []string) {
	t.Helper()
	var body map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Errorf("%s: %v", key, err)
		return
	}
	var faults []string
	for _, name := range schemas {
		fault := ""
		s := d.Components.Schemas[name]
		for _, required := range s.Required {
			if _, ok := body[required]; !ok {
				fault = "lacks " + required
			}
		}
		for field := range body {
			if _, ok := s.Properties[field]; !ok {
				fault = "has " + field + ", which is not described"
			}
		}
		if fault == "" {
			return
		}
		faults = append(faults, "as "+name+" it "+fault)
	}
	t.Errorf("%s: %v", key, faults)
}

func TestOpenAPISchemasMatchTypes(t *testing.T) {
	doc := description(t)
	types := map[string]any{"Groups": groupsResponse{}, "Answer": probeResponse{}, "Failure": failureResponse{}, "Status": statusResponse{}, "History": historyResponse{}, "Explain": explainResponse{}, "Whatif": whatifResponse{}, "Accepted": submitResponse{}, "AcceptedInGroups": allResponse{}, "Whoami": whoamiResponse{}, "Lease": leaseResponse{}, "Value": valueResponse{}}
	for name, v := range types {
		var have []string
		fields(reflect.TypeOf(v), &have)
		slices.Sort(have)
		want := slices.Sorted(maps.Keys(doc.Components.Schemas[name].Properties))
		if have = slices.Compact(have); !slices.Equal(have, want) {
			t.Errorf("%s has %v, but is documented with %v", name, have, want)
		}
	}
	if len(doc.Components.Schemas) != len(types) {
		t.Errorf("%d schemas, %d types", len(doc.Components.Schemas), len(types))
	}
}

func fields(t reflect.Type, names *[]string) {
	for f := range t.Fields() {
		if f.Anonymous {
			fields(f.Type, names)
		} else if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			*names = append(*names, name)
		}
	}
}

func TestOpenAPIRequestBodies(t *testing.T) {
	doc := description(t)
	for _, kind := range request.Kinds() {
		for name := range doc.Paths["/v1/"+string(kind)]["post"].RequestBody.Content["application/json"].Schema.Properties {
			if name != fieldReason && !kind.Takes(name) {
				t.Errorf("%s is documented to have %s", kind, name)
			}
		}
		for _, name := range []string{request.FieldNode, request.FieldSite, request.FieldAll, request.FieldHard, request.FieldFor, request.FieldForce, fieldReason} {
			_, said := doc.Paths["/v1/"+string(kind)]["post"].RequestBody.Content["application/json"].Schema.Properties[name]
			if (kind.Takes(name) || name == fieldReason) && !said {
				t.Errorf("%s is not documented to have %s", kind, name)
			}
		}
	}
}

// docs/http-api.md names every path and parameter, and no other paths.
func TestDocumentNamesEverything(t *testing.T) {
	data, err := os.ReadFile("../../docs/http-api.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := description(t)
	for _, r := range newAPI(optionsWithGroup()).routes() {
		if !strings.HasPrefix(r.path, groupsPath+"/") && !strings.Contains(string(data), "`"+r.path+"`") {
			t.Errorf("docs/http-api.md does not name %s", r.path)
		}
		for name := range doc.Paths[r.path]["post"].RequestBody.Content["application/json"].Schema.Properties {
			if !strings.Contains(string(data), "`"+name+"`") {
				t.Errorf("docs/http-api.md does not name the field %s", name)
			}
		}
		for _, p := range doc.Paths[r.path]["get"].Parameters {
			if !strings.Contains(string(data), p.Name) {
				t.Errorf("docs/http-api.md does not name the parameter %s", p.Name)
			}
		}
	}
	for _, kind := range []string{status.EventDaemon, status.EventState, status.EventLeadership, eventHeartbeat} {
		if !strings.Contains(string(data), "`"+kind+"`") {
			t.Errorf("docs/http-api.md does not name the event %s", kind)
		}
	}
	for _, bound := range []int{maxConns, maxStreams, maxClientStreams, maxClientRequests, maxRequests, maxGroupReads, defaultTerms, minTokenLen, request.MaxReason} {
		if !strings.Contains(string(data), strconv.Itoa(bound)) {
			t.Errorf("docs/http-api.md does not name the limit of %d", bound)
		}
	}
}
