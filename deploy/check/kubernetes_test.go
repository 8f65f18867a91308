package check

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// manifests are the objects of deploy/kubernetes, with the secret that its script generates. Unknown and repeated fields are errors.
type manifests struct {
	service *corev1.Service
	budget  *policyv1.PodDisruptionBudget
	set     *appsv1.StatefulSet
	job     *batchv1.Job
	secret  *corev1.Secret
}

func readManifests(t *testing.T) manifests {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme), policyv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := make(map[string][]byte)
	var err error
	for _, file := range []string{"../kubernetes/zkelectd.yaml", "../kubernetes/secret.sh"} {
		if strings.HasSuffix(file, ".sh") {
			documents[file], err = exec.Command(file).Output()
		} else {
			documents[file], err = os.ReadFile(file)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	var m manifests
	for file, data := range documents {
		for r := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data))); ; {
			text := make([]byte, len(data))
			n, err := r.Read(text)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			object, _, err := decoder.Decode(text[:n], nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			switch o := object.(type) {
			case *corev1.Service:
				m.service = o
			case *policyv1.PodDisruptionBudget:
				m.budget = o
			case *appsv1.StatefulSet:
				m.set = o
			case *batchv1.Job:
				m.job = o
			case *corev1.Secret:
				m.secret = o
			default:
				t.Errorf("%s: unexpected %T", file, o)
			}
		}
	}
	if m.service == nil || m.budget == nil || m.set == nil || m.job == nil || m.secret == nil {
		t.Fatal("an object is missing")
	}
	return m
}

// Every name of another object is that of an existing one.
func TestKubernetesReferencesExist(t *testing.T) {
	m := readManifests(t)
	pod := labels.Set(m.set.Spec.Template.Labels)
	for what, s := range map[string]*metav1.LabelSelector{
		"the set": m.set.Spec.Selector, "the budget": m.budget.Spec.Selector,
		"the service": {MatchLabels: m.service.Spec.Selector},
	} {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(pod) {
			t.Errorf("%s selects %v, the pods are %v", what, selector, pod)
		}
	}
	if m.set.Spec.ServiceName != m.service.Name || m.service.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("the set's service is %s, the headless one is %s", m.set.Spec.ServiceName, m.service.Name)
	}
	spec := m.set.Spec.Template.Spec
	for _, c := range spec.Containers {
		ports := make(map[string]int32)
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
		for _, p := range m.service.Spec.Ports {
			if ports[p.TargetPort.StrVal] != p.Port {
				t.Errorf("the service's port %s is not one of %v", p.Name, ports)
			}
		}
		for what, p := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
			if p == nil || p.HTTPGet == nil || !probes.MatchString(p.HTTPGet.Path) || ports[p.HTTPGet.Port.StrVal] == 0 {
				t.Errorf("the %s probe is %v", what, p)
			}
		}
		for _, mount := range c.VolumeMounts {
			if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
				t.Errorf("there is no volume %s", mount.Name)
			}
		}
	}
	for _, v := range spec.Volumes {
		if v.Secret != nil && v.Secret.SecretName != m.secret.Name {
			t.Errorf("there is no secret %s", v.Secret.SecretName)
		}
	}
}

// The pods meet the pod security standard "restricted" and more: a read-only root, limits, pinned images.
func TestKubernetesPodsAreRestricted(t *testing.T) {
	m := readManifests(t)
	spec := m.set.Spec.Template.Spec
	if spec.TerminationGracePeriodSeconds == nil || *spec.TerminationGracePeriodSeconds < 15 {
		t.Error("the grace period may be too short for a handover")
	}
	checkRestricted(t, spec)
	checkRestricted(t, m.job.Spec.Template.Spec)
}

func checkRestricted(t *testing.T, spec corev1.PodSpec) {
	t.Helper()
	is := func(b *bool, want bool) bool { return b != nil && *b == want }
	p := spec.SecurityContext
	if p == nil || !is(p.RunAsNonRoot, true) || p.RunAsUser == nil || *p.RunAsUser == 0 ||
		p.SeccompProfile == nil || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %v", p)
	}
	if !is(spec.AutomountServiceAccountToken, false) {
		t.Error("the pods have a token for the API server, which they don't need")
	}
	if !is(spec.EnableServiceLinks, false) {
		t.Error("services may add variables to the environment, which are refused as settings")
	}
	for _, c := range spec.Containers {
		checkPinned(t, c.Image)
		s := c.SecurityContext
		if s == nil || !is(s.AllowPrivilegeEscalation, false) || !is(s.ReadOnlyRootFilesystem, true) || s.Capabilities == nil ||
			!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("the security context of %s is %v", c.Name, s)
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if c.Resources.Limits.Name(name, "").IsZero() || c.Resources.Requests.Name(name, "").IsZero() {
				t.Errorf("%s has no limit or no request of %s", c.Name, name)
			}
		}
	}
}

// The daemon accepts the settings of the pod, with the values that the cluster substitutes.
func TestKubernetesSettingsAreAccepted(t *testing.T) {
	m := readManifests(t)
	for _, c := range m.set.Spec.Template.Spec.Containers {
		env := make(map[string]string)
		for _, e := range c.Env {
			env[e.Name] = e.Value
			for name, value := range env { // of the variables before it
				env[e.Name] = strings.ReplaceAll(env[e.Name], "$("+name+")", value)
			}
			if e.ValueFrom != nil {
				env[e.Name] = map[string]string{
					"metadata.name": "app-0", "metadata.namespace": "prod", "metadata.labels['topology.kubernetes.io/zone']": "eu-1a",
				}[e.ValueFrom.FieldRef.FieldPath]
			}
		}
		checkSettings(t, env, append([]string{"--"}, c.Args...)...)
		where := env["CREDENTIALS_DIRECTORY"]
		if !slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool { return v.MountPath == where }) {
			t.Errorf("nothing is mounted at %s", where)
		}
		if file := env["ZKELECTD_ZOOKEEPER_AUTH_FILE"]; !password.MatchString(m.secret.StringData[file]) {
			t.Errorf("the secret has no password %q", file)
		}
		if acl := env["ZKELECTD_ZOOKEEPER_ACL"]; acl != "private" {
			t.Errorf("the tree is %q", acl)
		}
	}
}

// The job creates the group of the members: with their image, at their root and servers, with their credentials.
func TestKubernetesJobCreatesTheGroupOfTheMembers(t *testing.T) {
	m := readManifests(t)
	job, member := m.job.Spec.Template.Spec.Containers[0], m.set.Spec.Template.Spec.Containers[0]
	if !slices.Equal(job.Command, []string{"zkelectd", "init"}) || len(job.Args) > 0 || job.Image != member.Image {
		t.Errorf("the job runs %v %v of %s", job.Command, job.Args, job.Image)
	}
	for _, e := range member.Env {
		if strings.HasPrefix(e.Name, "ZKELECTD_ZOOKEEPER_") && !slices.Contains(job.Env, e) {
			t.Errorf("the job lacks %s=%s", e.Name, e.Value)
		}
	}
	if !slices.ContainsFunc(m.job.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == m.secret.Name }) {
		t.Error("the job has no credentials")
	}
	selector, err := metav1.LabelSelectorAsSelector(m.set.Spec.Selector)
	if err != nil || selector.Matches(labels.Set(m.job.Spec.Template.Labels)) {
		t.Errorf("%v, or the set selects the pods of the job", err)
	}
}
