package activitiestest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	activitiesdrain "millwright/activities/drain"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe/cache"
)

// WithDrain makes a machine that is being deleted, with a drain that removes pods by the given means, such as eviction.
// The parameter ago is the time since the drain began.
func WithDrain(ago time.Duration, means drain.RemovalMeans) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		WithDeletionTimestamp(m)
		since := metav1.NewTime(time.Now().Add(-ago)).Rfc3339Copy()
		m.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
		m.Status.Deletion = &v1alpha1.MachineDeletion{
			Stage: v1alpha1.MachineDeletionDrain, Since: since,
			Drain: &v1alpha1.MachineDrain{StartedAt: since, Means: string(means), MeansSince: &since},
		}
	}
}

func WithLabel(key, value string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Labels[key] = value }
}

// WithNodeNotReady makes a node not Ready. The parameter ago is the time since the node was last Ready.
func WithNodeNotReady(ago time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions[0].Status = "Unknown"
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-ago)).Rfc3339Copy()
	}
}

func WithDetachRequest(a *storagev1.VolumeAttachment) {
	WithDeletionTimestamp(a)
	a.Finalizers = []string{"external-attacher/csi-example-com"}
}

// StartDetachWait starts the activity AwaitDetach.
func (w *World) StartDetachWait(in activitiesdrain.DetachWait) *runningActivity[activitiesdrain.DetachResult] {
	return StartActivity[activitiesdrain.DetachResult](
		w,
		(&activitiesdrain.Activities{Kube: w.Kube}).AwaitDetach,
		in,
		func(*testsuite.TestActivityEnvironment) {},
	)
}

func (w *World) VolumeAttachment(name, node string) *storagev1.VolumeAttachment {
	w.T.Helper()
	object, err := w.TargetClient.Tracker().
		Get(storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", name+"-on-"+node)
	if err != nil {
		return nil
	}
	return object.(*storagev1.VolumeAttachment)
}

// UpdateBudgetStatus writes the status of the budget, as the disruption controller does.
func (d *EvictionWorld) UpdateBudgetStatus(b *policyv1.PodDisruptionBudget) {
	d.T.Helper()
	_, err := d.TargetClient.PolicyV1().PodDisruptionBudgets("web").UpdateStatus(d.T.Context(), b, metav1.UpdateOptions{})
	require.NoError(d.T, err)
}

// slowEvictionClient is a client of a target cluster on which evictions take long, as if a webhook were slow. Unlike a
// fake, slowEvictionClient notices when the client cancels a request.
type slowEvictionClient struct {
	kubernetes.Interface
	// beforeEviction runs before an eviction. If beforeEviction returns an error, the eviction is not sent.
	beforeEviction func(ctx context.Context, pod string) error
}

// IsWatchListSemanticsUnSupported returns true, because the watches of the fake clientset send no initial list.
func (slowEvictionClient) IsWatchListSemanticsUnSupported() bool { return true }

func (e slowEvictionClient) CoreV1() typedcorev1.CoreV1Interface {
	return slowEvictionCoreClient{e.Interface.CoreV1(), e}
}

type slowEvictionCoreClient struct {
	typedcorev1.CoreV1Interface
	target slowEvictionClient
}

func (e slowEvictionCoreClient) Pods(namespace string) typedcorev1.PodInterface {
	return slowEvictionPodClient{e.CoreV1Interface.Pods(namespace), e.target}
}

type slowEvictionPodClient struct {
	typedcorev1.PodInterface
	target slowEvictionClient
}

func (e slowEvictionPodClient) EvictV1(ctx context.Context, eviction *policyv1.Eviction) error {
	if err := e.target.beforeEviction(ctx, eviction.Name); err != nil {
		return err
	}
	return e.PodInterface.EvictV1(ctx, eviction)
}

// RunBeforeEvictions calls before for each eviction, and then sends the eviction to the fake API server.
func (d *EvictionWorld) RunBeforeEvictions(t *testing.T, before func(ctx context.Context, pod string) error) {
	t.Helper()
	cluster, err := cache.NewCluster(d.MachineClient, slowEvictionClient{d.TargetClient, before}, nil)
	require.NoError(t, err)
	require.NoError(t, cluster.WatchDrainResources())
	require.NoError(t, cluster.Start(t.Context()))
	d.Cluster = cluster
}

// PodRequest is one request about a pod.
type PodRequest struct {
	Verb        string // verb of the request: evict or delete
	Pod         string
	UID         string // UID precondition; empty: the request has no precondition
	GracePeriod string // grace period in the request; empty: the pod's own grace period
}

// EvictionWorld answers the requests to evict or delete pods in place of the API server. After an accepted request, a
// pod is terminating and exists until the test ends it.
type EvictionWorld struct {
	*World
	mu          sync.Mutex
	requests    []PodRequest
	errorsByPod map[string]error // errors to return for requests about a pod, by pod
}

var PodsResource = corev1.SchemeGroupVersion.WithResource("pods")

// InterceptPodRequests returns an EvictionWorld that answers the pod requests of the world.
func (w *World) InterceptPodRequests() *EvictionWorld {
	d := &EvictionWorld{World: w, errorsByPod: map[string]error{}}
	w.TargetClient.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.CreateActionImpl)
		if a.Subresource != "eviction" {
			return false, nil, nil
		}
		e := a.Object.(*policyv1.Eviction)
		return true, nil, d.answerPodRequest("evict", a.Namespace, e.Name, e.DeleteOptions)
	})
	w.TargetClient.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.DeleteActionImpl)
		return true, nil, d.answerPodRequest("delete", a.Namespace, a.Name, &a.DeleteOptions)
	})
	return d
}

func (d *EvictionWorld) answerPodRequest(verb, namespace, name string, options *metav1.DeleteOptions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := PodRequest{Verb: verb, Pod: name}
	if options != nil && options.Preconditions != nil && options.Preconditions.UID != nil {
		r.UID = string(*options.Preconditions.UID)
	}
	if options != nil && options.GracePeriodSeconds != nil {
		r.GracePeriod = (time.Duration(*options.GracePeriodSeconds) * time.Second).String()
	}
	d.requests = append(d.requests, r)
	if err := d.errorsByPod[name]; err != nil {
		return err
	}
	object, err := d.TargetClient.Tracker().Get(PodsResource, namespace, name)
	if err != nil {
		return err
	}
	if p := object.(*corev1.Pod); r.UID != "" && r.UID != string(p.UID) {
		return apierrors.NewConflict(PodsResource.GroupResource(), name, nil)
	}
	d.ChangePod(name, func(p *corev1.Pod) {
		grace := 30 * time.Second
		if options != nil && options.GracePeriodSeconds != nil {
			grace = time.Duration(*options.GracePeriodSeconds) * time.Second
		}
		p.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(grace)).Rfc3339Copy())
	})
	return nil
}

// SetRequestError makes the API server return this error for requests about the pods. SetRequestError removes the error
// if err is nil.
func (d *EvictionWorld) SetRequestError(err error, pods ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range pods {
		d.errorsByPod[name] = err
	}
}

// TakeNewRequests returns the requests since the last call of TakeNewRequests, sorted by pod.
func (d *EvictionWorld) TakeNewRequests() []PodRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.Clone(d.requests)
	slices.SortStableFunc(list, func(a, b PodRequest) int { return compareStrings(a.Pod, b.Pod) })
	d.requests = nil
	return list
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// ChangePod writes a pod, as a kubelet or the API server does.
func (w *World) ChangePod(name string, change func(*corev1.Pod)) {
	w.APIServer.mu.Lock()
	defer w.APIServer.mu.Unlock()
	object, err := w.TargetClient.Tracker().Get(PodsResource, "web", name)
	if !assert.NoError(w.T, err) {
		return
	}
	p := object.DeepCopyObject().(*corev1.Pod)
	change(p)
	p.ResourceVersion = w.APIServer.nextVersion(w.TargetClient.Tracker(), PodsResource)
	assert.NoError(w.T, w.TargetClient.Tracker().Update(PodsResource, p, "web"))
}

// RemovePods removes pods, as a kubelet does.
func (w *World) RemovePods(names ...string) {
	for _, name := range names {
		assert.NoError(w.T, w.TargetClient.Tracker().Delete(PodsResource, "web", name))
	}
}

// RunningEviction is a running EvictPods.
type RunningEviction struct {
	*runningActivity[activitiesdrain.EvictionResult]
	Heartbeats chan activitiesdrain.Progress
}

// StartEviction starts EvictPods, with the heartbeat details of an earlier attempt if before is set.
func (w *World) StartEviction(in activitiesdrain.Eviction, before ...any) *RunningEviction {
	e := &RunningEviction{Heartbeats: make(chan activitiesdrain.Progress, 1000)}
	e.runningActivity = StartActivity[activitiesdrain.EvictionResult](
		w,
		(&activitiesdrain.Activities{Kube: w.Kube}).EvictPods,
		in,
		func(env *testsuite.TestActivityEnvironment) {
			env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
				var b activitiesdrain.Progress
				if err := details.Get(&b); err != nil {
					b.Picture.Why = err.Error()
				}
				e.Heartbeats <- b
			})
			for _, details := range before {
				env.SetHeartbeatDetails(details)
			}
		},
	)
	return e
}

// NewVolumeAttachment is the attachment of the volume pv-<name> to a node. An empty name means a volume without a
// persistent volume.
func NewVolumeAttachment(name, node string, change ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name + "-on-" + node,
			UID:             types.UID("uid-" + name + "-" + node),
			ResourceVersion: "900",
		},
	}
	a.Spec.Attacher, a.Spec.NodeName, a.Status.Attached = "csi.example.com", node, true
	if name != "" {
		a.Spec.Source.PersistentVolumeName = new("pv-" + name)
	}
	return ApplyChanges(a, change)
}

// DetachVolume detaches a volume from the node n.
func (w *World) DetachVolume(name string) {
	w.T.Helper()
	require.NoError(
		w.T,
		w.TargetClient.StorageV1().VolumeAttachments().Delete(w.T.Context(), name+"-on-n", metav1.DeleteOptions{}),
	)
}

// AttachVolumeToOtherNode attaches a volume to another node.
func (w *World) AttachVolumeToOtherNode(name string) {
	w.T.Helper()
	_, err := w.TargetClient.StorageV1().
		VolumeAttachments().
		Create(w.T.Context(), NewVolumeAttachment(name, "other"), metav1.CreateOptions{})
	require.NoError(w.T, err)
}
