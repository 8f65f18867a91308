package recipes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["cloud-address"] = runCloudAddress }

// cloud plays the metadata services and the APIs of Hetzner, AWS and Google. Each machine asks under a path of its own.
type cloud struct {
	*testing.T
	mu        sync.Mutex
	has       map[string]string // the machine that has an address
	polls     int               // of the action that is under way
	refused   bool
	protected map[string]bool // machines, from scale-in
	contended int             // so many calls of SetInstanceProtection fail
	route     string          // where it leads; empty if there is none
	taken     bool            // another machine creates the route at the next deletion
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	machine, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if path == "v1/" { // the daemons have one CLOUD_API for all
		path = ""
	}
	switch {
	case c.refused:
		w.WriteHeader(http.StatusServiceUnavailable)
	case path == "":
		c.aws(w, r, machine, path, string(body))
	case path == "hetzner/v1/metadata/instance-id":
		fmt.Fprintln(w, machine)
	case strings.HasPrefix(path, "v1/") && r.Header.Get("Authorization") != "Bearer secret-token":
		w.WriteHeader(http.StatusUnauthorized)
	case path == "v1/floating_ips/4711" && r.Method == http.MethodGet:
		fmt.Fprintf(w, `{"floating_ip":{"id":4711,"server":%s}}`, orNull(c.has["4711"]))
	case path == "v1/floating_ips/4711/actions/assign" && r.Method == http.MethodPost:
		var to struct{ Server int }
		if err := json.Unmarshal(body, &to); err != nil || to.Server == 0 {
			c.Errorf("assign %s: %v", body, err)
		}
		c.has["4711"], c.polls = fmt.Sprint(to.Server), 0
		fmt.Fprint(w, `{"action":{"id":7,"status":"running"}}`)
	case path == "v1/actions/7":
		status := "running"
		if c.polls++; c.polls == 2 {
			status = "success"
		}
		fmt.Fprintf(w, `{"action":{"id":7,"status":%q,"error":null}}`, status)
	case strings.HasPrefix(path, "computeMetadata/v1/"), strings.HasPrefix(path, "v1/projects/"):
		c.google(w, r, machine, path, body)
	default:
		c.aws(w, r, machine, path, string(body))
	}
}

// google plays Google's metadata server and Compute Engine. An operation is done once somebody has waited for it.
func (c *cloud) google(w http.ResponseWriter, r *http.Request, machine, path string, body []byte) {
	if text, ok := strings.CutPrefix(path, "computeMetadata/v1/"); ok {
		known := map[string]string{
			"instance/service-accounts/default/token": `{"access_token":"secret-token","expires_in":3599,"token_type":"Bearer"}`,
			"project/project-id":                      "app-project",
			"instance/zone":                           "projects/42/zones/europe-west1-b",
			"instance/name":                           "vm-" + machine,
			"instance/network-interfaces/0/network":   "projects/42/networks/default",
		}
		if r.Header.Get("Metadata-Flavor") != "Google" || known[text] == "" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, known[text])
		return
	}
	const running, done = `{"name":"operation-1","status":"RUNNING"}`, `{"name":"operation-1","status":"DONE"}`
	switch call := r.Method + " " + strings.TrimPrefix(path, "v1/projects/app-project/global/"); {
	case r.Header.Get("Authorization") != "Bearer secret-token":
		w.WriteHeader(http.StatusUnauthorized)
	case call == "POST operations/operation-1/wait" && len(body) == 0:
		if c.polls++; c.polls%2 == 0 {
			fmt.Fprint(w, done)
		} else {
			fmt.Fprint(w, running) // it has taken too long
		}
	case call == "GET routes/app" && c.route != "":
		fmt.Fprintf(w, `{"name":"app","nextHopInstance":"https://www.googleapis.com/compute/v1/%s"}`, c.route)
	case call == "DELETE routes/app" && c.route != "":
		c.route = ""
		if c.taken {
			c.route, c.taken = "projects/app-project/zones/europe-west1-b/instances/other", false
		}
		fmt.Fprint(w, running)
	case call == "GET routes/app", call == "DELETE routes/app":
		w.WriteHeader(http.StatusNotFound)
	case call == "POST routes" && c.route != "":
		w.WriteHeader(http.StatusConflict)
	case call == "POST routes":
		var to struct{ Name, Network, DestRange, NextHopInstance string }
		if err := json.Unmarshal(body, &to); err != nil || to.Name != "app" || to.DestRange != "10.99.0.1/32" ||
			to.Network != "projects/app-project/global/networks/default" || r.Header.Get("Content-Type") != "application/json" {
			c.Errorf("insert %s: %v", body, err)
		}
		c.route = to.NextHopInstance
		fmt.Fprint(w, running)
	default:
		c.Errorf("%s %s: %s", r.Method, r.URL, body)
		w.WriteHeader(http.StatusNotFound)
	}
}

func orNull(machine string) string {
	if machine == "" {
		return "null"
	}
	return machine
}

// signature matches the header with the access key and the service of a request to AWS.
var signature = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=AKID/\d{8}/eu-west-1/(ec2|autoscaling)/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=[0-9a-f]{64}$`)

func (c *cloud) aws(w http.ResponseWriter, r *http.Request, machine, path, body string) {
	if strings.HasPrefix(path, "latest/meta-data/") && r.Header.Get("X-aws-ec2-metadata-token") != "metadata-token" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	service := ""
	if m := signature.FindStringSubmatch(r.Header.Get("Authorization")); m != nil {
		service = m[1]
	}
	const answer = `<?xml version="1.0"?><R xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><addressesSet><item><instanceId>%s</instanceId></item></addressesSet></R>`
	switch {
	case path == "latest/api/token" && r.Method == http.MethodPut:
		fmt.Fprint(w, "metadata-token")
	case path == "latest/meta-data/placement/region":
		fmt.Fprint(w, "eu-west-1")
	case path == "latest/meta-data/instance-id":
		fmt.Fprint(w, "i-"+machine)
	case path == "latest/meta-data/iam/security-credentials/":
		fmt.Fprint(w, "role")
	case path == "latest/meta-data/iam/security-credentials/role":
		fmt.Fprint(w, `{"AccessKeyId":"AKID","SecretAccessKey":"secret","Token":"session"}`)
	case path == "" && r.Method == http.MethodPost && service == "":
		c.Errorf("signed as %q", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusForbidden)
	case service == "autoscaling" && strings.Contains(body, "&Version=2011-01-01&"):
		c.scaling(w, machine, body)
	case path == "" && strings.HasPrefix(body, "Action=DescribeAddresses&") && strings.Contains(body, "&AllocationId.1=eipalloc-1"):
		fmt.Fprintf(w, answer, c.has["eipalloc-1"])
	case path == "" && strings.HasPrefix(body, "Action=AssociateAddress&") && strings.Contains(body, "&AllowReassociation=true"):
		c.has["eipalloc-1"] = "i-" + machine
		fmt.Fprintf(w, answer, "")
	default:
		c.Errorf("%s %s: %s", r.Method, r.URL, body)
		w.WriteHeader(http.StatusNotFound)
	}
}

// scaling plays EC2 Auto Scaling.
func (c *cloud) scaling(w http.ResponseWriter, machine, body string) {
	values, err := url.ParseQuery(body)
	const answer = `<R xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">%s</R>`
	const group = `<AutoScalingInstances><member><InstanceId>i</InstanceId><AutoScalingGroupName>my-asg</AutoScalingGroupName></member></AutoScalingInstances>`
	switch action := values.Get("Action"); {
	case err != nil || values.Get("InstanceIds.member.1") != "i-"+machine:
		c.Errorf("%s: %v", body, err)
	case action == "DescribeAutoScalingInstances":
		fmt.Fprintf(w, answer, group)
	case action == "SetInstanceProtection" && c.contended > 0:
		c.contended--
		w.WriteHeader(http.StatusInternalServerError)
	case action == "SetInstanceProtection" && values.Get("AutoScalingGroupName") == "my-asg":
		c.protected[machine] = values.Get("ProtectedFromScaleIn") == "true"
		fmt.Fprintf(w, answer, "")
	default:
		c.Errorf("%s", body)
	}
}

func (c *cloud) isProtected(machine string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.protected[machine]
}

func (c *cloud) owner(address string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has[address]
}

func (c *cloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// The address follows the leader of real daemons, with a server that plays the cloud, and is taken back from others.
func runCloudAddress(t *testing.T) {
	c := &cloud{T: t, has: make(map[string]string), protected: make(map[string]bool), contended: 1}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	f := newFleet(t, zkserver.Options{})
	program := f.write("cloud-address", f.example("cloud-address/cloud-address"))
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	token := f.write("hcloud.token", "secret-token\n")
	for i, id := range []string{"n1", "n2"} {
		machine := server.URL + "/" + fmt.Sprint(i+1)
		f.daemon(id, f.example("cloud-address/zkelectd.yaml",
			"{id: n1, site: dc1, priority: 100}", fmt.Sprintf("{id: %s, site: dc1, priority: %d}", id, 100-i),
			`["zk1:2181", "zk2:2181", "zk3:2181"]`, fmt.Sprintf("[%q]", f.zk.Addr()),
			"  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private\n", "", "interval: 10s", "interval: 1s",
			"[/usr/bin/app, --serve]\n", fmt.Sprintf("[sleep, infinity]\n  env: {CLOUD_METADATA: %q, CLOUD_API: %q, HCLOUD_TOKEN_FILE: %q}\n", machine, machine+"/v1", token),
			"/usr/local/lib/zkelectd/cloud-address", program)+
			fmt.Sprintf("  on_leader_change: [%s, aws-protection]\n", program))
	}
	f.stopFirst("n1", "n2")
	has := func(machine string) {
		t.Helper()
		f.eventually("machine "+machine+" has the address", func() bool { return c.owner("4711") == machine })
	}
	protects := func(leader, other string) {
		t.Helper()
		f.eventually("only machine "+leader+" is protected", func() bool { return c.isProtected(leader) && !c.isProtected(other) })
	}
	has("1")
	protects("1", "2")
	f.moves("/cloud-address", "n2")
	has("2")
	protects("2", "1")
	c.set(func() { c.has["4711"] = "99" }) // by mistake, or by a late request
	has("2")
	f.signal(syscall.SIGKILL, "n2", "daemon")
	f.eventually("somebody has it", func() bool { return c.owner("4711") == "1" || c.owner("4711") == "2" })

	// AWS, by hand.
	for _, machine := range []string{"1", "2"} {
		cmd := exec.CommandContext(t.Context(), program, "aws", "eipalloc-1")
		cmd.Env = append(os.Environ(), "CLOUD_METADATA="+server.URL+"/"+machine, "CLOUD_API="+server.URL+"/"+machine)
		if out, err := cmd.CombinedOutput(); err != nil || c.owner("eipalloc-1") != "i-"+machine {
			t.Errorf("%v, %s: %s has the address", err, out, c.owner("eipalloc-1"))
		}
	}
	// Google, by hand: a new route, another machine's, one that somebody else takes meanwhile, and its own.
	for _, machine := range []string{"1", "2", "1", "1"} {
		c.set(func() { c.taken = machine == "1" && c.route != "" })
		cmd := exec.CommandContext(t.Context(), program, "gcp", "app=10.99.0.1/32")
		cmd.Env = append(os.Environ(), "CLOUD_METADATA="+server.URL+"/"+machine, "CLOUD_API="+server.URL+"/"+machine+"/v1")
		out, err := cmd.CombinedOutput()
		c.set(func() {
			if want := "projects/app-project/zones/europe-west1-b/instances/vm-" + machine; err != nil || c.route != want {
				t.Errorf("%v, %s: the route leads to %s, want %s", err, out, c.route, want)
			}
		})
	}
	c.set(func() { c.refused = true })
	for _, keep := range []string{"", "keep"} {
		cmd := exec.CommandContext(t.Context(), program, strings.Fields("aws eipalloc-1 "+keep)...)
		cmd.Env = append(os.Environ(), "CLOUD_METADATA="+server.URL+"/1", "CLOUD_API="+server.URL+"/1")
		if out, err := cmd.CombinedOutput(); (err == nil) != (keep != "") || !strings.Contains(string(out), "503") {
			t.Errorf("%q: %v, %s", keep, err, out)
		}
	}
}
