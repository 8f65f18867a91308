package recipes

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["kubernetes"] = kubernetes }

// deletionCost is the annotation by which a Deployment chooses the pods to delete.
const deletionCost = "controller.kubernetes.io/pod-deletion-cost"

// apiServer plays the API server of Kubernetes: it patches the labels of pods.
type apiServer struct {
	*testing.T
	mu   sync.Mutex
	pods map[string]map[string]string // labels by the name of the pod
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/prod/pods/")
	labels, exists := a.pods[name]
	var patch struct {
		Metadata struct {
			Labels      map[string]*string `json:"labels"`
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}
	switch err := json.NewDecoder(r.Body).Decode(&patch); {
	case err != nil || r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/merge-patch+json":
		a.Errorf("%s %s: %v", r.Method, r.URL, err)
		w.WriteHeader(http.StatusBadRequest)
	case r.Header.Get("Authorization") != "Bearer secret-token":
		w.WriteHeader(http.StatusUnauthorized)
	case !exists:
		w.WriteHeader(http.StatusNotFound)
	default:
		maps.Copy(patch.Metadata.Labels, patch.Metadata.Annotations)
		for key, value := range patch.Metadata.Labels {
			if delete(labels, key); value != nil {
				labels[key] = *value
			}
		}
	}
}

// labeled returns the pods with the label of the leader.
func (a *apiServer) labeled() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.pods)), func(pod string) bool {
		cost, labeled := a.pods[pod][deletionCost], a.pods[pod]["zkelectd-leader"] == "true"
		if (cost == "100") != labeled {
			a.Errorf("%s is labeled: %t, and its deletion costs %q", pod, labeled, cost)
		}
		return !labeled
	})
}

// kubernetes runs the hook of the recipe with real daemons against a server that plays the API server.
func kubernetes(t *testing.T) {
	f := newFleet(t, zkserver.Options{})
	api := &apiServer{T: t, pods: map[string]map[string]string{"app-0": {}, "app-1": {}}}
	server := httptest.NewTLSServer(api)
	t.Cleanup(server.Close)
	f.write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	f.write("namespace", "prod")
	f.write("token", "secret-token")
	hook, err := filepath.Abs(filepath.Join(examples, "kubernetes/leader-label.sh"))
	if err != nil {
		t.Fatal(err)
	}
	start := func(id, priority string) {
		cmd := exec.Command(binary, "run", "--create", "--zk", f.zk.Addr(), "--root", "/app", "--id", id, "--site", "eu-1a", "--priority", priority, "--no-child")
		cmd.Env = append(os.Environ(), "KUBERNETES_API="+server.URL, "SERVICE_ACCOUNT_DIR="+f.dir, "ZKELECTD_HOOKS_ON_LEADER_CHANGE="+hook)
		f.start(id, cmd)
	}
	labeled := func(pods ...string) {
		t.Helper()
		f.eventually(fmt.Sprintf("the pods %v have the label", pods), func() bool { return slices.Equal(api.labeled(), pods) })
	}
	start("app-0", "100")
	labeled("app-0")
	start("app-1", "50")
	f.logged("app-1", "msg=registered")
	f.moves("/app", "app-1", "--for", "1h")
	labeled("app-1")
	// The leader's host is lost: its own hook does not run.
	f.signal(syscall.SIGKILL, "app-1", "guard", "daemon")
	labeled("app-0")

	// A pod that does not exist any more is no failure; a refusal is.
	run := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), hook)
		cmd.Env = append(os.Environ(), "KUBERNETES_API="+server.URL, "SERVICE_ACCOUNT_DIR="+f.dir,
			"ZKELECTD_NODE=app-0", "ZKELECTD_LEADER=app-0", "ZKELECTD_PREVIOUS_LEADER=app-9")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err != nil {
		t.Errorf("after the pod of the previous leader was deleted: %v: %s", err, out)
	}
	f.write("token", "expired")
	if out, err := run(); err == nil || !strings.Contains(out, "the API server answers 401") {
		t.Errorf("with an expired token: %v: %s", err, out)
	}
}
