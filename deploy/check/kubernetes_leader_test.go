package check

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const leaderExample = "../examples/kubernetes/"

// readExample decodes the objects of a file of the example strictly.
func readExample(t *testing.T, file string) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	data, err := os.ReadFile(leaderExample + file)
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for r := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data))); ; {
		text := make([]byte, len(data))
		n, err := r.Read(text)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(text[:n], nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, object)
	}
}

// The service of the example selects pods of the StatefulSet by the label that the hook sets, and the pods may only patch pods.
func TestLeaderLabelReferencesExist(t *testing.T) {
	base := readManifests(t).set
	patch, ok := readExample(t, "statefulset-patch.yaml")[0].(*appsv1.StatefulSet)
	if !ok || patch.Name != base.Name {
		t.Fatalf("the patch is not for the StatefulSet %s", base.Name)
	}
	account := patch.Spec.Template.Spec.ServiceAccountName
	kinds := make(map[string]int)
	for _, object := range readExample(t, "leader-service.yaml") {
		switch o := object.(type) {
		case *corev1.Service:
			kinds["service"]++
			hook, err := os.ReadFile(leaderExample + "leader-label.sh")
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range o.Spec.Selector {
				if base.Spec.Template.Labels[key] != value && (value != "true" || !bytes.Contains(hook, []byte(`\"`+key+`\"`))) {
					t.Errorf("no pod has the label %s=%s", key, value)
				}
			}
		case *corev1.ServiceAccount:
			kinds["account "+o.Name]++
		case *rbacv1.Role:
			kinds["role "+o.Name]++
			if len(o.Rules) != 1 || !slices.Equal(o.Rules[0].Verbs, []string{"patch"}) || !slices.Equal(o.Rules[0].Resources, []string{"pods"}) {
				t.Errorf("the role permits %v", o.Rules)
			}
		case *rbacv1.RoleBinding:
			kinds["bound role "+o.RoleRef.Name]++
			if len(o.Subjects) != 1 || o.Subjects[0].Name != account {
				t.Errorf("the role is bound to %v", o.Subjects)
			}
		default:
			t.Errorf("unexpected %T", o)
		}
	}
	for _, want := range []string{"service", "account " + account, "role app-leader-label", "bound role app-leader-label"} {
		if kinds[want] != 1 {
			t.Errorf("there are %d of %s", kinds[want], want)
		}
	}
}

// The patch adds the hook, which is mounted where the setting says, to the container of the base.
func TestLeaderLabelHookIsMounted(t *testing.T) {
	base := readManifests(t).set.Spec.Template.Spec
	patch, ok := readExample(t, "statefulset-patch.yaml")[0].(*appsv1.StatefulSet)
	if !ok {
		t.Fatal("the patch is not a StatefulSet")
	}
	spec := patch.Spec.Template.Spec
	if len(spec.Containers) != 1 || spec.Containers[0].Name != base.Containers[0].Name || spec.ServiceAccountName == "" ||
		spec.AutomountServiceAccountToken == nil || !*spec.AutomountServiceAccountToken {
		t.Fatalf("the patch is %+v", spec)
	}
	c := spec.Containers[0]
	hook := c.Env[0].Value
	if _, err := os.Stat(leaderExample + path.Base(hook)); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool {
		return v.MountPath == path.Dir(hook) && slices.ContainsFunc(spec.Volumes, func(s corev1.Volume) bool { return s.Name == v.Name && s.ConfigMap != nil })
	}) {
		t.Errorf("nothing is mounted at %s", path.Dir(hook))
	}
	checkSettings(t, map[string]string{
		c.Env[0].Name: hook, "ZKELECTD_NODE_ID": "app-0", "ZKELECTD_ZOOKEEPER_SERVERS": "zk1:2181", "ZKELECTD_ZOOKEEPER_ROOT": "/app", "ZKELECTD_HTTP_LISTEN": ":7980",
	}, "--", "true")
}
