//go:build integration

package admission

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/devstack/stack"
)

const (
	// testNamespace contains every object of the test. The namespace default cannot be used, because it may not exist
	// without a controller manager.
	testNamespace = "admission"
	// crdServeTimeout is the maximum wait until a ready API server serves Millwright's kinds. crdServeTimeout only ends a
	// test that would otherwise wait for ever.
	crdServeTimeout = 10 * time.Minute
)

// apiServer is an API server with Millwright's CRDs.
type apiServer struct {
	restClient      rest.Interface
	dynamicClient   dynamic.Interface
	typedClient     versioned.Interface
	discoveryClient discovery.DiscoveryInterface
}

// startAPIServer starts etcd and an API server, which end with the test, and installs the CRDs.
func startAPIServer(t *testing.T) *apiServer {
	s, err := stack.Up(t.Context(), stack.Options{
		Dir: t.TempDir(), UseFreePorts: true, EndsWithThisProcess: true, Components: []string{"etcd", "kube-apiserver"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Down(context.WithoutCancel(t.Context()))) })

	config, err := clientcmd.BuildConfigFromFlags("", s.KubeconfigPath("admin"))
	require.NoError(t, err)
	config.QPS = -1 // no client-side rate limit: no other client needs this API server
	core, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	typed, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	dyn, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	a := &apiServer{
		restClient:      typed.MachineV1alpha1().RESTClient(),
		dynamicClient:   dyn,
		typedClient:     typed,
		discoveryClient: core.Discovery(),
	}

	_, err = core.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	a.installCRDs(t)
	return a
}

// installCRDs installs the CRDs, and returns when the API server serves each kind. installCRDs uses server-side apply,
// because the stack may have installed the CRDs before. Strict field validation makes unknown keywords an error.
func (a *apiServer) installCRDs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), crdServeTimeout)
	defer cancel()
	force := true
	crds := a.dynamicClient.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	for plural := range kindsByPlural {
		name := plural + "." + v1alpha1.GroupName
		text := readFile(t, filepath.Join("../../../deploy/crds", v1alpha1.GroupName+"_"+plural+".yaml"))
		_, err := crds.Patch(ctx, name, types.ApplyYAMLPatchType, text, metav1.PatchOptions{
			FieldManager: "admission-test", Force: &force, FieldValidation: metav1.FieldValidationStrict,
		})
		require.NoError(t, err, name)
	}
	for plural := range kindsByPlural {
		var last error
		err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, last = a.dynamicClient.Resource(v1alpha1.SchemeGroupVersion.WithResource(plural)).List(ctx, metav1.ListOptions{})
			return last == nil, nil
		})
		require.NoError(t, err, "%s are not served: %v", plural, last)
	}
}

// createObject sends a YAML file unchanged, with kubectl's strict validation, and returns the stored object.
func (a *apiServer) createObject(ctx context.Context, text []byte) ([]byte, error) {
	plural, _, err := readResourceAndName(text)
	if err != nil {
		return nil, err
	}
	return a.sendRequest(ctx, http.MethodPost, resourcePath(plural), text)
}

// updateObject replaces an object by the sent object.
func (a *apiServer) updateObject(ctx context.Context, text []byte) error {
	plural, name, err := readResourceAndName(text)
	if err != nil {
		return err
	}
	_, err = a.sendRequest(ctx, http.MethodPut, resourcePath(plural)+"/"+name, text)
	return err
}

func (a *apiServer) sendRequest(ctx context.Context, verb, path string, text []byte) ([]byte, error) {
	return resultBody(a.restClient.Verb(verb).AbsPath(path).
		Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", "application/yaml").
		Body(text).Do(ctx))
}

// resultBody returns the body of an answer, or the API server's error. resultBody calls Result.Error first, because
// Result.Raw does not decode the API server's error message.
func resultBody(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

func resourcePath(plural string) string {
	return fmt.Sprintf("/apis/%s/namespaces/%s/%s", v1alpha1.SchemeGroupVersion, testNamespace, plural)
}
