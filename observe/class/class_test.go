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

// secret returns the metadata of a Secret.
func secret(name string, change ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	s := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: observetest.Meta(name),
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func withFinalizer(s *metav1.PartialObjectMetadata) {
	s.Finalizers = []string{v1alpha1.FinalizerSecret}
}

func secretIsDeleting(s *metav1.PartialObjectMetadata) { s.DeletionTimestamp = observetest.Now() }

func classIsDeleting(c *v1alpha1.MachineClass) { c.DeletionTimestamp = observetest.Now() }

// withSecretRef sets a class's secretRef to a Secret.
func withSecretRef(namespace, name string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.SecretRef = &corev1.SecretReference{Namespace: namespace, Name: name}
	}
}

// withCredentials sets a class's credentialsSecretRef to a Secret.
func withCredentials(namespace, name string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.CredentialsSecretRef = &corev1.SecretReference{Namespace: namespace, Name: name}
	}
}

func withClass(kind, name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Spec.Class = v1alpha1.ClassSpec{Kind: kind, Name: name} }
}

// startWithSecrets returns caches that include the metadata of Secrets, and the fake client of that metadata.
func startWithSecrets(
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

// servedClass returns a class whose condition Served has this status.
func servedClass(as metav1.ConditionStatus) *v1alpha1.MachineClass {
	return observetest.Class("small", func(c *v1alpha1.MachineClass) {
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClassServed, Status: as, Message: "as asked"}}
	})
}

func TestClassFacts(t *testing.T) {
	small := observetest.Class("small", withSecretRef("shop", "keys"))
	going := observetest.Class("small", withSecretRef("shop", "keys"), classIsDeleting)
	user := observetest.Machine("user")
	type secrets = []*metav1.PartialObjectMetadata
	for _, row := range []struct {
		name  string
		class *v1alpha1.MachineClass
		n     class.Neighbours
		want  attention.ClassFacts
	}{
		{"in order", small, class.Neighbours{Secrets: secrets{secret("keys", withFinalizer)}}, attention.ClassFacts{Finalizer: true}},
		{"without finalizer", observetest.Class("small", func(c *v1alpha1.MachineClass) { c.Finalizers = []string{"other"} }), class.Neighbours{}, attention.ClassFacts{}},
		{"its Secret is missing", small, class.Neighbours{}, attention.ClassFacts{Finalizer: true}},
		{"machines that refer to it, terminating ones included", going, class.Neighbours{Machines: []*v1alpha1.Machine{
			user, observetest.Machine("going", observetest.GoingMachine), observetest.Machine("large", withClass("MachineClass", "large")), observetest.Machine("old", withClass("AWSMachineClass", "small")),
		}}, attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 3}},
		{"its Secret lacks our finalizer", small, class.Neighbours{Secrets: secrets{
			secret("keys", func(s *metav1.PartialObjectMetadata) { s.Finalizers = []string{v1alpha1.FinalizerMachine} }), secret("other"),
		}}, attention.ClassFacts{Finalizer: true, Unguarded: 1}},
		{"so does that of its credentials alone", observetest.Class("small", withCredentials("", "keys")), class.Neighbours{
			Secrets: secrets{secret("keys")},
		}, attention.ClassFacts{Finalizer: true, Unguarded: 1}},
		{"one Secret for both", observetest.Class("small", withSecretRef("", "keys"), withCredentials("shop", "keys")), class.Neighbours{
			Secrets: secrets{secret("keys")},
		}, attention.ClassFacts{Finalizer: true, Unguarded: 1}},
		{"two Secrets", observetest.Class("small", withSecretRef("", "keys"), withCredentials("shop", "more")), class.Neighbours{
			Secrets: secrets{secret("keys"), secret("more")},
		}, attention.ClassFacts{Finalizer: true, Unguarded: 2}},
		{"a Secret of another namespace is not ours, whatever lies here under its name", observetest.Class("small", withSecretRef("keys", "keys"), withCredentials("keys", "more")), class.Neighbours{
			Secrets: secrets{secret("keys"), secret("more", withFinalizer)},
		}, attention.ClassFacts{Finalizer: true, Unused: 1}},
		{"a Secret that goes gets no finalizer any more", small, class.Neighbours{Secrets: secrets{secret("keys", secretIsDeleting)}}, attention.ClassFacts{Finalizer: true}},
		{"a Secret that goes is kept while the class needs it", small, class.Neighbours{Secrets: secrets{secret("keys", withFinalizer, secretIsDeleting)}}, attention.ClassFacts{Finalizer: true}},
		{"a class that goes needs its Secret while a machine refers to it", going, class.Neighbours{
			Machines: []*v1alpha1.Machine{observetest.Machine("going", observetest.GoingMachine)}, Secrets: secrets{secret("keys")},
		}, attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 1, Unguarded: 1}},
		{"then no more", going, class.Neighbours{Secrets: secrets{secret("keys", withFinalizer)}}, attention.ClassFacts{Deleting: true, Finalizer: true, Unused: 1}},
		{"nor gets its Secret the finalizer back", going, class.Neighbours{Secrets: secrets{secret("keys")}}, attention.ClassFacts{Deleting: true, Finalizer: true}},
		{"unless another class needs it", going, class.Neighbours{
			Classes: []*v1alpha1.MachineClass{observetest.Class("large", withCredentials("", "keys"))}, Secrets: secrets{secret("keys", withFinalizer)},
		}, attention.ClassFacts{Deleting: true, Finalizer: true}},
		{"one that goes with its machines", going, class.Neighbours{
			Classes:  []*v1alpha1.MachineClass{observetest.Class("large", withSecretRef("", "keys"), classIsDeleting)},
			Machines: []*v1alpha1.Machine{observetest.Machine("m", withClass("MachineClass", "large"))}, Secrets: secrets{secret("keys", withFinalizer)},
		}, attention.ClassFacts{Deleting: true, Finalizer: true}},
		{"but not one that goes as well: neither would release it", going, class.Neighbours{
			Classes: []*v1alpha1.MachineClass{observetest.Class("large", withSecretRef("", "keys"), classIsDeleting)}, Secrets: secrets{secret("keys", withFinalizer)},
		}, attention.ClassFacts{Deleting: true, Finalizer: true, Unused: 1}},
		{"a worker serves its provider", servedClass(metav1.ConditionTrue), class.Neighbours{}, attention.ClassFacts{Finalizer: true, Reported: true}},
		{"no worker does", servedClass(metav1.ConditionFalse), class.Neighbours{}, attention.ClassFacts{Finalizer: true, Reported: true, ReportedUnserved: true}},
		{"a Secret that no class names any more", small, class.Neighbours{Secrets: secrets{secret("keys", withFinalizer), secret("former", withFinalizer)}}, attention.ClassFacts{Finalizer: true, Unused: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.n.Classes = append(row.n.Classes, row.class)
			assert.Equal(t, row.want, class.Facts(row.class, row.n))
		})
	}
}

func TestSecretsOfADecisionAreInOrder(t *testing.T) {
	n := class.Neighbours{
		Classes: []*v1alpha1.MachineClass{observetest.Class("small", withSecretRef("", "z"), withCredentials("", "y"))},
		Secrets: []*metav1.PartialObjectMetadata{
			secret("z"),
			secret("b", withFinalizer),
			secret("y"),
			secret("a", withFinalizer),
		},
	}
	assert.Equal(
		t,
		[]string{"y", "z"},
		[]string{n.SecretsWithoutFinalizer(n.Classes[0])[0].Name, n.SecretsWithoutFinalizer(n.Classes[0])[1].Name},
	)
	assert.Equal(t, []string{"a", "b"}, []string{n.Unused()[0].Name, n.Unused()[1].Name})
}

func TestNeighbours(t *testing.T) {
	foreignSecret, foreignClass, foreignMachine := secret("keys"), observetest.Class("small"), observetest.Machine("m")
	for _, o := range []metav1.Object{foreignSecret, foreignClass, foreignMachine} {
		o.SetNamespace("other")
		o.SetResourceVersion("100")
	}
	small, m, keys := observetest.Class("small"), observetest.Machine("m"), secret("keys")
	small.ResourceVersion, m.ResourceVersion, keys.ResourceVersion = "7", "9", "8"
	cluster, client := startWithSecrets(
		t,
		[]runtime.Object{keys, foreignSecret},
		small,
		foreignClass,
		observetest.Class("large"),
		m,
		observetest.Machine("n"),
		foreignMachine,
	)
	live, err := class.ReadLive(t.Context(), cluster, "shop")
	require.NoError(t, err)
	for way, n := range map[string]class.Neighbours{"cached": class.Read(cluster, "shop"), "live": live} {
		t.Run(way, func(t *testing.T) {
			assert.Equal(t, []string{"large", "small"}, observetest.Names(n.Classes))
			assert.Equal(t, []string{"m", "n"}, observetest.Names(n.Machines))
			assert.Equal(t, []string{"keys"}, observetest.Names(n.Secrets))
			assert.Equal(t, cache.MinVersions{cache.Classes: "7", cache.Machines: "9", cache.Secrets: "8"}, n.Versions())
			assert.Equal(t, "small", n.Class("uid-small").Name)
			assert.Nil(t, n.Class("uid-of-a-former-one"))
		})
	}
	client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	_, err = class.ReadLive(t.Context(), cluster, "shop")
	require.EqualError(t, err, "list metadata of secrets of namespace shop: away")
}

func TestNeighboursWithoutSecrets(t *testing.T) {
	cluster, _ := observetest.Start(t, nil, observetest.Class("small"))
	assert.Nil(t, cluster.Informer(cache.Secrets))
	live, err := class.ReadLive(t.Context(), cluster, "shop")
	require.NoError(t, err)
	for _, n := range []class.Neighbours{class.Read(cluster, "shop"), live} {
		assert.Len(t, n.Classes, 1)
		assert.Empty(t, n.Secrets)
	}
}

// kubectl apply leaves a copy of a Secret in the Secret's annotations, and no cache may keep this copy.
func TestTheCacheKeepsNoDataOfASecret(t *testing.T) {
	s := secret("keys", withFinalizer, secretIsDeleting)
	s.ResourceVersion, s.Labels = "7", map[string]string{"a": "b"}
	s.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"password":"c2VjcmV0"}}`,
	}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	cluster, _ := startWithSecrets(t, []runtime.Object{s})
	kept := class.Read(cluster, "shop").Secrets
	require.Len(t, kept, 1)
	assert.Equal(t, metav1.ObjectMeta{
		Namespace: "shop", Name: "keys", UID: "uid-keys", ResourceVersion: "7",
		DeletionTimestamp: kept[0].DeletionTimestamp, Finalizers: []string{v1alpha1.FinalizerSecret},
	}, kept[0].ObjectMeta)
	assert.NotNil(t, kept[0].DeletionTimestamp)
}

func TestWhichNamespacesMayUseASecret(t *testing.T) {
	for _, row := range []struct {
		allows string
		users  []string // subset of shop (the Secret's namespace), bakery, farm and bake
	}{
		{"", []string{"shop"}},
		{"bakery", []string{"shop", "bakery"}},
		{" bakery ,farm", []string{"shop", "bakery", "farm"}},
		{"*", []string{"shop", "bakery", "farm", "bake"}},
		{"farm,*", []string{"shop", "bakery", "farm", "bake"}},
		{",", []string{"shop"}},
	} {
		s := secret("keys")
		s.Annotations = map[string]string{v1alpha1.AnnotationAllowedClassNamespaces: row.allows}
		var users []string
		for _, namespace := range []string{"shop", "bakery", "farm", "bake"} {
			if class.Allows(s, namespace) {
				users = append(users, namespace)
			}
		}
		assert.Equal(t, row.users, users, row.allows)
	}
}

func TestTheSecretsOfOtherNamespaces(t *testing.T) {
	for want, c := range map[string]*v1alpha1.MachineClass{
		"[]":            observetest.Class("own", withSecretRef("shop", "keys"), withCredentials("", "keys")),
		"[other/keys]":  observetest.Class("both", withSecretRef("other", "keys"), withCredentials("other", "keys")),
		"[x/keys y/it]": observetest.Class("two", withSecretRef("x", "keys"), withCredentials("y", "it")),
		"[z/keys]":      observetest.Class("one", withSecretRef("shop", "keys"), withCredentials("z", "keys")),
	} {
		assert.Equal(t, want, fmt.Sprint(class.ForeignSecrets(c)))
	}
	assert.Empty(t, class.ForeignSecrets(observetest.Class("no name", withSecretRef("other", ""))))
}

func TestClassesOfSecret(t *testing.T) {
	cluster, _ := observetest.Start(
		t,
		nil,
		observetest.Class("none"),
		observetest.Class("user-data", withSecretRef("shop", "keys")),
		observetest.Class("both", withSecretRef("shop", "keys"), withCredentials("shop", "keys")),
		observetest.Class(
			"credentials",
			withCredentials("shop", "keys"),
		),
		observetest.Class("other", withSecretRef("shop", "other")),
		observetest.Class("other-namespace", withSecretRef("other", "keys")),
		observetest.Class("no-namespace", withSecretRef("", "keys")),
	)
	assert.Equal(
		t,
		[]string{"both", "credentials", "no-namespace", "user-data"},
		observetest.Names(class.ClassesOfSecret(cluster, "shop", "keys")),
	)
}
