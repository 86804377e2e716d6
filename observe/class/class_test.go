package class_test

import (
	"errors"
	"fmt"
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
	"millwright/observe/cache"
	"millwright/observe/class"
	"millwright/observe/observetest"
)

// newSecret returns the metadata of a Secret.
func newSecret(name string, change ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	s := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: observetest.NewMetadata(name),
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func withFinalizer(s *metav1.PartialObjectMetadata) {
	s.Finalizers = []string{v1alpha1.FinalizerSecret}
}

func asDeletingSecret(s *metav1.PartialObjectMetadata) { s.DeletionTimestamp = observetest.Now() }

func asDeletingClass(c *v1alpha1.MachineClass) { c.DeletionTimestamp = observetest.Now() }

func withSecretRef(namespace, name string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.SecretRef = &corev1.SecretReference{Namespace: namespace, Name: name}
	}
}

func withCredentialsSecretRef(namespace, name string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.CredentialsSecretRef = &corev1.SecretReference{Namespace: namespace, Name: name}
	}
}

func withClassRef(kind, name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Spec.Class = v1alpha1.ClassSpec{Kind: kind, Name: name} }
}

// startCachesWithSecrets returns caches that include the metadata of Secrets, and the fake client of that metadata.
func startCachesWithSecrets(
	t *testing.T,
	secrets []runtime.Object,
	objects ...runtime.Object,
) (*cache.Cluster, *metadatafake.FakeMetadataClient) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	client := metadatafake.NewSimpleMetadataClient(scheme, secrets...)
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(objects...), kubefake.NewClientset(), client)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	return cluster, client
}

// classWithServedStatus returns a class whose condition Served has this status.
func classWithServedStatus(as metav1.ConditionStatus) *v1alpha1.MachineClass {
	return observetest.NewClass("small", func(c *v1alpha1.MachineClass) {
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClassServed, Status: as, Message: "as asked"}}
	})
}

func TestClassFacts(t *testing.T) {
	small := observetest.NewClass("small", withSecretRef("shop", "keys"))
	going := observetest.NewClass("small", withSecretRef("shop", "keys"), asDeletingClass)
	user := observetest.NewMachine("user")
	type secrets = []*metav1.PartialObjectMetadata
	for _, row := range []struct {
		name  string
		class *v1alpha1.MachineClass
		n     class.NamespaceObjects
		want  attention.ClassFacts
	}{
		{"in order", small, class.NamespaceObjects{Secrets: secrets{newSecret("keys", withFinalizer)}}, attention.ClassFacts{HasFinalizer: true}},
		{"without finalizer", observetest.NewClass("small", func(c *v1alpha1.MachineClass) { c.Finalizers = []string{"other"} }), class.NamespaceObjects{}, attention.ClassFacts{}},
		{"its Secret is missing", small, class.NamespaceObjects{}, attention.ClassFacts{HasFinalizer: true}},
		{"machines that refer to it, terminating ones included", going, class.NamespaceObjects{Machines: []*v1alpha1.Machine{
			user, observetest.NewMachine("going", observetest.AsDeletingMachine), observetest.NewMachine("large", withClassRef("MachineClass", "large")), observetest.NewMachine("old", withClassRef("AWSMachineClass", "small")),
		}}, attention.ClassFacts{Deleting: true, HasFinalizer: true, MachineCount: 3}},
		{"its Secret lacks our finalizer", small, class.NamespaceObjects{Secrets: secrets{
			newSecret("keys", func(s *metav1.PartialObjectMetadata) { s.Finalizers = []string{v1alpha1.FinalizerMachine} }), newSecret("other"),
		}}, attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 1}},
		{"so does that of its credentials alone", observetest.NewClass("small", withCredentialsSecretRef("", "keys")), class.NamespaceObjects{
			Secrets: secrets{newSecret("keys")},
		}, attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 1}},
		{"one Secret for both", observetest.NewClass("small", withSecretRef("", "keys"), withCredentialsSecretRef("shop", "keys")), class.NamespaceObjects{
			Secrets: secrets{newSecret("keys")},
		}, attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 1}},
		{"two Secrets", observetest.NewClass("small", withSecretRef("", "keys"), withCredentialsSecretRef("shop", "more")), class.NamespaceObjects{
			Secrets: secrets{newSecret("keys"), newSecret("more")},
		}, attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 2}},
		{"a Secret of another namespace is not ours, whatever lies here under its name", observetest.NewClass("small", withSecretRef("keys", "keys"), withCredentialsSecretRef("keys", "more")), class.NamespaceObjects{
			Secrets: secrets{newSecret("keys"), newSecret("more", withFinalizer)},
		}, attention.ClassFacts{HasFinalizer: true, UnusedSecretCount: 1}},
		{"a Secret that goes gets no finalizer any more", small, class.NamespaceObjects{Secrets: secrets{newSecret("keys", asDeletingSecret)}}, attention.ClassFacts{HasFinalizer: true}},
		{"a Secret that goes is kept while the class needs it", small, class.NamespaceObjects{Secrets: secrets{newSecret("keys", withFinalizer, asDeletingSecret)}}, attention.ClassFacts{HasFinalizer: true}},
		{"a class that goes needs its Secret while a machine refers to it", going, class.NamespaceObjects{
			Machines: []*v1alpha1.Machine{observetest.NewMachine("going", observetest.AsDeletingMachine)}, Secrets: secrets{newSecret("keys")},
		}, attention.ClassFacts{Deleting: true, HasFinalizer: true, MachineCount: 1, UnguardedSecretCount: 1}},
		{"then no more", going, class.NamespaceObjects{Secrets: secrets{newSecret("keys", withFinalizer)}}, attention.ClassFacts{Deleting: true, HasFinalizer: true, UnusedSecretCount: 1}},
		{"nor gets its Secret the finalizer back", going, class.NamespaceObjects{Secrets: secrets{newSecret("keys")}}, attention.ClassFacts{Deleting: true, HasFinalizer: true}},
		{"unless another class needs it", going, class.NamespaceObjects{
			Classes: []*v1alpha1.MachineClass{observetest.NewClass("large", withCredentialsSecretRef("", "keys"))}, Secrets: secrets{newSecret("keys", withFinalizer)},
		}, attention.ClassFacts{Deleting: true, HasFinalizer: true}},
		{"one that goes with its machines", going, class.NamespaceObjects{
			Classes:  []*v1alpha1.MachineClass{observetest.NewClass("large", withSecretRef("", "keys"), asDeletingClass)},
			Machines: []*v1alpha1.Machine{observetest.NewMachine("m", withClassRef("MachineClass", "large"))}, Secrets: secrets{newSecret("keys", withFinalizer)},
		}, attention.ClassFacts{Deleting: true, HasFinalizer: true}},
		{"but not one that goes as well: neither would release it", going, class.NamespaceObjects{
			Classes: []*v1alpha1.MachineClass{observetest.NewClass("large", withSecretRef("", "keys"), asDeletingClass)}, Secrets: secrets{newSecret("keys", withFinalizer)},
		}, attention.ClassFacts{Deleting: true, HasFinalizer: true, UnusedSecretCount: 1}},
		{"a worker serves its provider", classWithServedStatus(metav1.ConditionTrue), class.NamespaceObjects{}, attention.ClassFacts{HasFinalizer: true, ServingReported: true}},
		{"no worker does", classWithServedStatus(metav1.ConditionFalse), class.NamespaceObjects{}, attention.ClassFacts{HasFinalizer: true, ServingReported: true, ReportedUnserved: true}},
		{"a Secret that no class names any more", small, class.NamespaceObjects{Secrets: secrets{newSecret("keys", withFinalizer), newSecret("former", withFinalizer)}}, attention.ClassFacts{HasFinalizer: true, UnusedSecretCount: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.n.Classes = append(row.n.Classes, row.class)
			assert.Equal(t, row.want, class.Facts(row.class, row.n))
		})
	}
}

func TestSecretsInADecisionAreSorted(t *testing.T) {
	n := class.NamespaceObjects{
		Classes: []*v1alpha1.MachineClass{
			observetest.NewClass("small", withSecretRef("", "z"), withCredentialsSecretRef("", "y")),
		},
		Secrets: []*metav1.PartialObjectMetadata{
			newSecret("z"),
			newSecret("b", withFinalizer),
			newSecret("y"),
			newSecret("a", withFinalizer),
		},
	}
	assert.Equal(
		t,
		[]string{"y", "z"},
		[]string{n.SecretsWithoutFinalizer(n.Classes[0])[0].Name, n.SecretsWithoutFinalizer(n.Classes[0])[1].Name},
	)
	assert.Equal(t, []string{"a", "b"}, []string{n.UnusedSecrets()[0].Name, n.UnusedSecrets()[1].Name})
}

func TestNamespaceObjects(t *testing.T) {
	foreignSecret, foreignClass, foreignMachine := newSecret(
		"keys",
	), observetest.NewClass(
		"small",
	), observetest.NewMachine(
		"m",
	)
	for _, o := range []metav1.Object{foreignSecret, foreignClass, foreignMachine} {
		o.SetNamespace("other")
		o.SetResourceVersion("100")
	}
	small, m, keys := observetest.NewClass("small"), observetest.NewMachine("m"), newSecret("keys")
	small.ResourceVersion, m.ResourceVersion, keys.ResourceVersion = "7", "9", "8"
	cluster, client := startCachesWithSecrets(
		t,
		[]runtime.Object{keys, foreignSecret},
		small,
		foreignClass,
		observetest.NewClass("large"),
		m,
		observetest.NewMachine("n"),
		foreignMachine,
	)
	live, err := class.ReadLiveNamespaceObjects(t.Context(), cluster, "shop")
	require.NoError(t, err)
	for way, n := range map[string]class.NamespaceObjects{"cached": class.ReadNamespaceObjects(cluster, "shop"), "live": live} {
		t.Run(way, func(t *testing.T) {
			assert.Equal(t, []string{"large", "small"}, observetest.ObjectNames(n.Classes))
			assert.Equal(t, []string{"m", "n"}, observetest.ObjectNames(n.Machines))
			assert.Equal(t, []string{"keys"}, observetest.ObjectNames(n.Secrets))
			assert.Equal(
				t,
				cache.MinVersions{cache.ClassesResource: "7", cache.MachinesResource: "9", cache.SecretsResource: "8"},
				n.ResourceVersions(),
			)
			assert.Equal(t, "small", n.ClassByUID("uid-small").Name)
			assert.Nil(t, n.ClassByUID("uid-of-a-former-one"))
		})
	}
	client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	_, err = class.ReadLiveNamespaceObjects(t.Context(), cluster, "shop")
	require.EqualError(t, err, "list metadata of secrets of namespace shop: away")
}

func TestNamespaceObjectsWithoutSecrets(t *testing.T) {
	cluster, _ := observetest.StartCaches(t, nil, observetest.NewClass("small"))
	assert.Nil(t, cluster.Informer(cache.SecretsResource))
	live, err := class.ReadLiveNamespaceObjects(t.Context(), cluster, "shop")
	require.NoError(t, err)
	for _, n := range []class.NamespaceObjects{class.ReadNamespaceObjects(cluster, "shop"), live} {
		assert.Len(t, n.Classes, 1)
		assert.Empty(t, n.Secrets)
	}
}

// kubectl apply leaves a copy of a Secret in the Secret's annotations, and no cache may keep this copy.
func TestTheCacheKeepsNoDataOfASecret(t *testing.T) {
	s := newSecret("keys", withFinalizer, asDeletingSecret)
	s.ResourceVersion, s.Labels = "7", map[string]string{"a": "b"}
	s.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"password":"c2VjcmV0"}}`,
	}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	cluster, _ := startCachesWithSecrets(t, []runtime.Object{s})
	kept := class.ReadNamespaceObjects(cluster, "shop").Secrets
	require.Len(t, kept, 1)
	assert.Equal(t, metav1.ObjectMeta{
		Namespace: "shop", Name: "keys", UID: "uid-keys", ResourceVersion: "7",
		DeletionTimestamp: kept[0].DeletionTimestamp, Finalizers: []string{v1alpha1.FinalizerSecret},
	}, kept[0].ObjectMeta)
	assert.NotNil(t, kept[0].DeletionTimestamp)
}

func TestSecretAllowsNamespace(t *testing.T) {
	for _, row := range []struct {
		allows string
		// namespaces whose classes may use the Secret, out of shop (the Secret's namespace), bakery, farm and bake
		users []string
	}{
		{"", []string{"shop"}},
		{"bakery", []string{"shop", "bakery"}},
		{" bakery ,farm", []string{"shop", "bakery", "farm"}},
		{"*", []string{"shop", "bakery", "farm", "bake"}},
		{"farm,*", []string{"shop", "bakery", "farm", "bake"}},
		{",", []string{"shop"}},
	} {
		s := newSecret("keys")
		s.Annotations = map[string]string{v1alpha1.AnnotationAllowedClassNamespaces: row.allows}
		var users []string
		for _, namespace := range []string{"shop", "bakery", "farm", "bake"} {
			if class.SecretAllowsNamespace(s, namespace) {
				users = append(users, namespace)
			}
		}
		assert.Equal(t, row.users, users, row.allows)
	}
}

func TestSecretKeysOfOtherNamespaces(t *testing.T) {
	for want, c := range map[string]*v1alpha1.MachineClass{
		"[]":            observetest.NewClass("own", withSecretRef("shop", "keys"), withCredentialsSecretRef("", "keys")),
		"[other/keys]":  observetest.NewClass("both", withSecretRef("other", "keys"), withCredentialsSecretRef("other", "keys")),
		"[x/keys y/it]": observetest.NewClass("two", withSecretRef("x", "keys"), withCredentialsSecretRef("y", "it")),
		"[z/keys]":      observetest.NewClass("one", withSecretRef("shop", "keys"), withCredentialsSecretRef("z", "keys")),
	} {
		assert.Equal(t, want, fmt.Sprint(class.SecretKeysOfOtherNamespaces(c)))
	}
	assert.Empty(t, class.SecretKeysOfOtherNamespaces(observetest.NewClass("no name", withSecretRef("other", ""))))
}

func TestClassesOfSecret(t *testing.T) {
	cluster, _ := observetest.StartCaches(
		t,
		nil,
		observetest.NewClass("none"),
		observetest.NewClass("user-data", withSecretRef("shop", "keys")),
		observetest.NewClass("both", withSecretRef("shop", "keys"), withCredentialsSecretRef("shop", "keys")),
		observetest.NewClass(
			"credentials",
			withCredentialsSecretRef("shop", "keys"),
		),
		observetest.NewClass("other", withSecretRef("shop", "other")),
		observetest.NewClass("other-namespace", withSecretRef("other", "keys")),
		observetest.NewClass("no-namespace", withSecretRef("", "keys")),
	)
	assert.Equal(
		t,
		[]string{"both", "credentials", "no-namespace", "user-data"},
		observetest.ObjectNames(class.ClassesOfSecret(cluster, "shop", "keys")),
	)
}
