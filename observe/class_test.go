package observe_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe"
)

// secret is the metadata of one; guarded, it carries our finalizer.
func secret(name string, change ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	s := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta(name)}
	for _, f := range change {
		f(s)
	}
	return s
}

func guarded(s *metav1.PartialObjectMetadata) { s.Finalizers = []string{v1alpha1.FinalizerSecret} }

func goingSecret(s *metav1.PartialObjectMetadata) { s.DeletionTimestamp = now() }

func class(name string, change ...func(*v1alpha1.MachineClass)) *v1alpha1.MachineClass {
	c := &v1alpha1.MachineClass{ObjectMeta: meta(name)}
	c.Finalizers = []string{v1alpha1.FinalizerMachine}
	for _, f := range change {
		f(c)
	}
	return c
}

func goingClass(c *v1alpha1.MachineClass) { c.DeletionTimestamp = now() }

// naming makes a class refer to one Secret, as namespace and name.
func naming(namespace, name string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.SecretRef = &corev1.SecretReference{Namespace: namespace, Name: name}
	}
}

// withCredentials names a Secret with credentialsSecretRef.
func withCredentials(namespace, name string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.CredentialsSecretRef = &corev1.SecretReference{Namespace: namespace, Name: name}
	}
}

func ofClass(kind, name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Spec.Class = v1alpha1.ClassSpec{Kind: kind, Name: name} }
}

// startWithSecrets is start with a cache of Secrets' metadata.
func startWithSecrets(t *testing.T, secrets []runtime.Object, objects ...runtime.Object) (*observe.Cluster, *metadatafake.FakeMetadataClient) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	client := metadatafake.NewSimpleMetadataClient(scheme, secrets...)
	cluster, err := observe.NewCluster(fake.NewSimpleClientset(objects...), kubefake.NewClientset(), client)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	return cluster, client
}

func TestClassFacts(t *testing.T) {
	small := class("small", naming("shop", "keys"))
	going := class("small", naming("shop", "keys"), goingClass)
	user := machine("user")
	type secrets = []*metav1.PartialObjectMetadata
	for _, row := range []struct {
		name  string
		class *v1alpha1.MachineClass
		n     observe.Neighbours
		want  attention.ClassFacts
	}{
		{"in order", small, observe.Neighbours{Secrets: secrets{secret("keys", guarded)}}, attention.ClassFacts{Finalizer: true}},
		{"U171: without finalizer", class("small", func(c *v1alpha1.MachineClass) { c.Finalizers = []string{"other"} }), observe.Neighbours{}, attention.ClassFacts{}},
		{"U171: its Secret is missing", small, observe.Neighbours{}, attention.ClassFacts{Finalizer: true}},
		{"U170: machines that refer to it, terminating ones included", going, observe.Neighbours{Machines: []*v1alpha1.Machine{
			user, machine("going", goingMachine), machine("large", ofClass("MachineClass", "large")), machine("old", ofClass("OldClass", "small")),
		}}, attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 2}},
		{"U170: its Secret lacks our finalizer", small, observe.Neighbours{Secrets: secrets{
			secret("keys", func(s *metav1.PartialObjectMetadata) { s.Finalizers = []string{v1alpha1.FinalizerMachine} }), secret("other"),
		}}, attention.ClassFacts{Finalizer: true, Unguarded: 1}},
		{"U170, D34: so does that of its credentials alone", class("small", withCredentials("", "keys")), observe.Neighbours{
			Secrets: secrets{secret("keys")},
		}, attention.ClassFacts{Finalizer: true, Unguarded: 1}},
		{"one Secret for both", class("small", naming("", "keys"), withCredentials("shop", "keys")), observe.Neighbours{
			Secrets: secrets{secret("keys")},
		}, attention.ClassFacts{Finalizer: true, Unguarded: 1}},
		{"two Secrets", class("small", naming("", "keys"), withCredentials("shop", "more")), observe.Neighbours{
			Secrets: secrets{secret("keys"), secret("more")},
		}, attention.ClassFacts{Finalizer: true, Unguarded: 2}},
		{"U170: a Secret of another namespace is not ours, whatever lies here under its name", class("small", naming("keys", "keys"), withCredentials("keys", "more")), observe.Neighbours{
			Secrets: secrets{secret("keys"), secret("more", guarded)},
		}, attention.ClassFacts{Finalizer: true, Unused: 1}},
		{"a Secret that goes gets no finalizer any more", small, observe.Neighbours{Secrets: secrets{secret("keys", goingSecret)}}, attention.ClassFacts{Finalizer: true}},
		{"U170: a Secret that goes is kept while the class needs it", small, observe.Neighbours{Secrets: secrets{secret("keys", guarded, goingSecret)}}, attention.ClassFacts{Finalizer: true}},
		{"N11: a class that goes needs its Secret while a machine refers to it", going, observe.Neighbours{
			Machines: []*v1alpha1.Machine{machine("going", goingMachine)}, Secrets: secrets{secret("keys")},
		}, attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 1, Unguarded: 1}},
		{"U170: then no more", going, observe.Neighbours{Secrets: secrets{secret("keys", guarded)}}, attention.ClassFacts{Deleting: true, Finalizer: true, Unused: 1}},
		{"nor gets its Secret the finalizer back", going, observe.Neighbours{Secrets: secrets{secret("keys")}}, attention.ClassFacts{Deleting: true, Finalizer: true}},
		{"U170: unless another class needs it", going, observe.Neighbours{
			Classes: []*v1alpha1.MachineClass{class("large", withCredentials("", "keys"))}, Secrets: secrets{secret("keys", guarded)},
		}, attention.ClassFacts{Deleting: true, Finalizer: true}},
		{"one that goes with its machines", going, observe.Neighbours{
			Classes:  []*v1alpha1.MachineClass{class("large", naming("", "keys"), goingClass)},
			Machines: []*v1alpha1.Machine{machine("m", ofClass("MachineClass", "large"))}, Secrets: secrets{secret("keys", guarded)},
		}, attention.ClassFacts{Deleting: true, Finalizer: true}},
		{"but not one that goes as well: neither would release it", going, observe.Neighbours{
			Classes: []*v1alpha1.MachineClass{class("large", naming("", "keys"), goingClass)}, Secrets: secrets{secret("keys", guarded)},
		}, attention.ClassFacts{Deleting: true, Finalizer: true, Unused: 1}},
		{"U170: a Secret that no class names any more", small, observe.Neighbours{Secrets: secrets{secret("keys", guarded), secret("former", guarded)}}, attention.ClassFacts{Finalizer: true, Unused: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.n.Classes = append(row.n.Classes, row.class)
			assert.Equal(t, row.want, observe.ClassFacts(row.class, row.n))
		})
	}
}

func TestSecretsOfADecisionAreInOrder(t *testing.T) {
	n := observe.Neighbours{
		Classes: []*v1alpha1.MachineClass{class("small", naming("", "z"), withCredentials("", "y"))},
		Secrets: []*metav1.PartialObjectMetadata{secret("z"), secret("b", guarded), secret("y"), secret("a", guarded)},
	}
	assert.Equal(t, []string{"y", "z"}, []string{n.Unguarded(n.Classes[0])[0].Name, n.Unguarded(n.Classes[0])[1].Name})
	assert.Equal(t, []string{"a", "b"}, []string{n.Unused()[0].Name, n.Unused()[1].Name})
}

func TestNeighbours(t *testing.T) {
	foreignSecret, foreignClass, foreignMachine := secret("keys"), class("small"), machine("m")
	for _, o := range []metav1.Object{foreignSecret, foreignClass, foreignMachine} {
		o.SetNamespace("other")
		o.SetResourceVersion("100")
	}
	small, m, keys := class("small"), machine("m"), secret("keys")
	small.ResourceVersion, m.ResourceVersion, keys.ResourceVersion = "7", "9", "8"
	cluster, client := startWithSecrets(t, []runtime.Object{keys, foreignSecret}, small, foreignClass, class("large"), m, machine("n"), foreignMachine)
	live, err := cluster.LiveNeighbours(t.Context(), "shop")
	require.NoError(t, err)
	for way, n := range map[string]observe.Neighbours{"cached": cluster.Neighbours("shop"), "live": live} {
		t.Run(way, func(t *testing.T) {
			assert.Equal(t, []string{"large", "small"}, names(n.Classes))
			assert.Equal(t, []string{"m", "n"}, names(n.Machines))
			assert.Equal(t, []string{"keys"}, names(n.Secrets))
			assert.Equal(t, observe.Gate{observe.Classes: "7", observe.Machines: "9", observe.Secrets: "8"}, n.Versions())
			assert.Equal(t, "small", n.Class("uid-small").Name)
			assert.Nil(t, n.Class("uid-of-a-former-one"))
		})
	}
	client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	_, err = cluster.LiveNeighbours(t.Context(), "shop")
	require.EqualError(t, err, "list metadata of secrets of namespace shop: away")
}

func TestNeighboursWithoutSecrets(t *testing.T) {
	cluster, _ := start(t, nil, class("small"))
	assert.Nil(t, cluster.Informer(observe.Secrets))
	live, err := cluster.LiveNeighbours(t.Context(), "shop")
	require.NoError(t, err)
	for _, n := range []observe.Neighbours{cluster.Neighbours("shop"), live} {
		assert.Len(t, n.Classes, 1)
		assert.Empty(t, n.Secrets)
	}
}

// kubectl apply leaves a copy of a Secret in its annotations: no cache must hold it.
func TestNothingOfASecretIsKept(t *testing.T) {
	s := secret("keys", guarded, goingSecret)
	s.ResourceVersion, s.Labels = "7", map[string]string{"a": "b"}
	s.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"password":"c2VjcmV0"}}`}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	cluster, _ := startWithSecrets(t, []runtime.Object{s})
	kept := cluster.Neighbours("shop").Secrets
	require.Len(t, kept, 1)
	assert.Equal(t, metav1.ObjectMeta{
		Namespace: "shop", Name: "keys", UID: "uid-keys", ResourceVersion: "7",
		DeletionTimestamp: kept[0].DeletionTimestamp, Finalizers: []string{v1alpha1.FinalizerSecret},
	}, kept[0].ObjectMeta)
	assert.NotNil(t, kept[0].DeletionTimestamp)
}

func TestClassesOfSecret(t *testing.T) {
	cluster, _ := start(t, nil,
		class("none"), class("user-data", naming("shop", "keys")), class("both", naming("shop", "keys"), withCredentials("shop", "keys")),
		class("credentials", withCredentials("shop", "keys")), class("other", naming("shop", "other")),
		class("other-namespace", naming("other", "keys")), class("no-namespace", naming("", "keys")))
	assert.Equal(t, []string{"both", "credentials", "no-namespace", "user-data"}, names(cluster.ClassesOfSecret("shop", "keys")))
}
