package kubecli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
)

// Clients are clients of the control cluster.
type Clients struct {
	Machines versioned.Interface
	objects  dynamic.Interface
	mapper   meta.RESTMapper
	events   typedcorev1.EventsGetter
	nodes    typedcorev1.NodesGetter
}

// Connect returns Clients for the cluster of a kubeconfig. It does not call the API server.
func Connect(kubeconfig string) (Clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return Clients{}, fmt.Errorf("read kubeconfig %q: %w", kubeconfig, err)
	}
	config.UserAgent = "millwright-starter"
	machines, err := versioned.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("make client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("make client: %w", err)
	}
	finder, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("make client: %w", err)
	}
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("make client: %w", err)
	}
	return Clients{machines, objects, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(finder)), core, core}, nil
}

// Apply applies every object of a file, as `kubectl apply --server-side` does, and returns the one MachineDeployment among them
// as the server returned it.
func (c Clients) Apply(ctx context.Context, file string) (*v1alpha1.MachineDeployment, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read example: %w", err)
	}
	var deployments []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
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
	return c.Machines.MachineV1alpha1().MachineDeployments(namespace(deployments[0])).Get(ctx, deployments[0].GetName(), metav1.GetOptions{})
}

func (c Clients) applyObject(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("find %s in the API server (are Millwright's CRDs installed?): %w", kind.Kind, err)
	}
	_, err = c.objects.Resource(mapping.Resource).Namespace(namespace(object)).
		Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "millwright-starter", Force: true})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return nil
}

func namespace(o metav1.Object) string {
	if n := o.GetNamespace(); n != "" {
		return n
	}
	return metav1.NamespaceDefault
}
