package kubecli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/observe/capi"
)

// Clients are clients of one cluster.
type Clients struct {
	MachineClient versioned.Interface
	Core          typedcorev1.CoreV1Interface // events and nodes
	Leases        typedcoordinationv1.LeasesGetter
	Apps          typedappsv1.DeploymentsGetter
	UserReviews   typedauthenticationv1.SelfSubjectReviewsGetter
	AccessReviews typedauthorizationv1.SelfSubjectAccessReviewsGetter
	dynamicClient dynamic.Interface
	restMapper    meta.RESTMapper

	ClusterAPI *ClusterAPIReader // objects of Cluster API; nil means that Cluster API is not installed
}

// NewClients returns Clients for the cluster of a kubeconfig, without a call to the API server.
func NewClients(a ClusterAccess) (Clients, error) {
	config, err := a.config().ClientConfig()
	if err != nil {
		return Clients{}, a.configError(err)
	}
	config.UserAgent = "millwright-starter"
	machines, machinesErr := versioned.NewForConfig(config)
	cluster, clusterErr := kubernetes.NewForConfig(config)
	objects, objectsErr := dynamic.NewForConfig(config)
	upstream, upstreamErr := capi.NewClient(config)
	if err := errors.Join(machinesErr, clusterErr, objectsErr, upstreamErr); err != nil {
		return Clients{}, fmt.Errorf("make client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(cluster.Discovery()))
	return Clients{
		machines,
		cluster.CoreV1(),
		cluster.CoordinationV1(),
		cluster.AppsV1(),
		cluster.AuthenticationV1(),
		cluster.AuthorizationV1(),
		objects,
		mapper,
		NewClusterAPIReader(upstream, cluster.Discovery()),
	}, nil
}

// ReadDocuments returns the YAML documents of a file.
func ReadDocuments(file string) (documents [][]byte, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	for reader := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		documents = append(documents, document)
	}
}

// Apply applies every object of a file, as `kubectl apply --server-side` does, and reads and returns the only
// MachineDeployment of the file.
func (c Clients) Apply(ctx context.Context, file string) (*v1alpha1.MachineDeployment, error) {
	documents, err := ReadDocuments(file)
	if err != nil {
		return nil, err
	}
	var deployments []*unstructured.Unstructured
	for _, document := range documents {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := c.applyObject(ctx, object); err != nil {
			return nil, err
		}
		if object.GetKind() == "MachineDeployment" {
			deployments = append(deployments, object)
		}
	}
	if len(deployments) != 1 {
		return nil, fmt.Errorf("%s holds %d MachineDeployments, not one", file, len(deployments))
	}
	return c.MachineClient.MachineV1alpha1().
		MachineDeployments(namespaceOfObject(deployments[0])).
		Get(ctx, deployments[0].GetName(), metav1.GetOptions{})
}

func (c Clients) applyObject(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := c.restMapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("find %s in the API server (are Millwright's CRDs installed?): %w", kind.Kind, err)
	}
	_, err = c.dynamicClient.Resource(mapping.Resource).Namespace(namespaceOfObject(object)).
		Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "millwright-starter", Force: true})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return nil
}

func namespaceOfObject(o metav1.Object) string {
	return cmp.Or(o.GetNamespace(), metav1.NamespaceDefault)
}
