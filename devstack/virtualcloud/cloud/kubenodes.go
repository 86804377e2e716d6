package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/provider/virtual"
)

// KWOK selects its Nodes by this label and this annotation.
const (
	kwokLabelKey      = "type"
	kwokLabelValue    = "kwok"
	kwokAnnotationKey = "kwok.x-k8s.io/node"
)

// The client's rate limit allows 1,000 Nodes in a few seconds, so that the cloud is not the bottleneck of a
// measurement.
const (
	kubeQPS   = 200
	kubeBurst = 400
)

// kubeNodeClient creates Nodes in a cluster. KWOK simulates their kubelets.
type kubeNodeClient struct{ client kubernetes.Interface }

// NewKubeNodeClient returns the Nodes of the kubeconfig's cluster. NewKubeNodeClient sends no request.
func NewKubeNodeClient(kubeconfig string) (NodeClient, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = kubeQPS, kubeBurst, "virtualcloud"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make kubernetes client: %w", err)
	}
	return kubeNodeClient{client}, nil
}

// Register implements Nodes.
func (k kubeNodeClient) Register(ctx context.Context, instance virtual.Instance, spec virtual.Spec, bare bool) error {
	node := newNode(instance, spec)
	if bare {
		node.Spec.ProviderID = ""
		node.Spec.Taints = append(node.Spec.Taints, uninitializedTaint)
	}
	_, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	return nil
}

// uninitializedTaint is the taint of a Node whose kubelet expects a cloud-controller-manager.
var uninitializedTaint = corev1.Taint{
	Key:    "node.cloudprovider.kubernetes.io/uninitialized",
	Value:  "true",
	Effect: corev1.TaintEffectNoSchedule,
}

// Initialize implements Nodes.
func (k kubeNodeClient) Initialize(ctx context.Context, instance virtual.Instance) error {
	node, err := k.findNodeOfInstance(ctx, instance)
	if err != nil || node == nil {
		return err
	}
	node.Spec.ProviderID = instance.ProviderID
	node.Spec.Taints = slices.DeleteFunc(
		node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == uninitializedTaint.Key },
	)
	_, err = k.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("initialize node %s: %w", node.Name, err)
	}
	return nil
}

// Remove implements Nodes.
func (k kubeNodeClient) Remove(ctx context.Context, instance virtual.Instance) (bool, error) {
	node, err := k.findNodeOfInstance(ctx, instance)
	if err != nil || node == nil {
		return false, err
	}
	err = k.client.CoreV1().Nodes().Delete(ctx, node.Name, *metav1.NewPreconditionDeleteOptions(string(node.UID)))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("delete node %s: %w", node.Name, err)
	}
	return err == nil, nil
}

// StopKubelet implements Nodes.
func (k kubeNodeClient) StopKubelet(ctx context.Context, instance virtual.Instance) error {
	node, err := k.findNodeOfInstance(ctx, instance)
	if err != nil || node == nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "labels": map[string]any{kwokLabelKey: nil},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("patch node %s: %w", node.Name, err)
	}
	return nil
}

// findNodeOfInstance returns an instance's Node; nil if the Node is gone or belongs to another instance. A Node without
// a provider ID belongs to the instance with the Node's name.
func (k kubeNodeClient) findNodeOfInstance(ctx context.Context, instance virtual.Instance) (*corev1.Node, error) {
	node, err := k.client.CoreV1().Nodes().Get(ctx, instance.NodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", instance.NodeName, err)
	case node.Spec.ProviderID != "" && node.Spec.ProviderID != instance.ProviderID:
		return nil, nil
	}
	return node, nil
}

// newNode returns the Node that a kubelet and a cloud-controller-manager would create for the instance.
func newNode(instance virtual.Instance, spec virtual.Spec) *corev1.Node {
	capacity := corev1.ResourceList{}
	given := spec.Capacity
	if len(given) == 0 {
		given = virtual.DefaultCapacity()
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		// MustParse does not panic, because validateCreate has parsed the text before.
		capacity[corev1.ResourceName(name)] = resource.MustParse(string(given[name]))
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: instance.NodeName,
			Labels: map[string]string{
				kwokLabelKey:                   kwokLabelValue,
				corev1.LabelHostname:           instance.NodeName,
				corev1.LabelOSStable:           "linux",
				corev1.LabelArchStable:         "amd64",
				corev1.LabelTopologyRegion:     spec.Region,
				corev1.LabelTopologyZone:       spec.Zone,
				corev1.LabelInstanceTypeStable: spec.InstanceType,
			},
			Annotations: map[string]string{
				kwokAnnotationKey: "fake",
				// A kubelet sets this annotation; the attach-detach controller ignores the volumes of a Node without
				// it.
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			},
		},
		Spec: corev1.NodeSpec{ProviderID: instance.ProviderID},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: instance.Address},
				{Type: corev1.NodeHostName, Address: instance.NodeName},
			},
		},
	}
}
