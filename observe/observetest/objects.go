package observetest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/set"
)

// InvalidSelector returns a selector that does not parse.
func InvalidSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Nonsense"}}}
}

func WithResourceVersion(v string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.ResourceVersion = v }
}

func NewClass(name string, change ...func(*v1alpha1.MachineClass)) *v1alpha1.MachineClass {
	c := &v1alpha1.MachineClass{ObjectMeta: NewMetadata(name)}
	c.Finalizers = []string{v1alpha1.FinalizerMachine}
	for _, f := range change {
		f(c)
	}
	return c
}

func WithAnnotationKeys(keys ...string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Annotations = map[string]string{"note": "mine"}
		for _, key := range keys {
			m.Annotations[key] = ""
		}
	}
}

func WithSingleAnnotation(key, value string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Annotations = map[string]string{key: value} }
}

// InDeletionStage puts a machine's deletion into this stage.
func InDeletionStage(stage v1alpha1.MachineDeletionStage, of *v1alpha1.MachineDrain) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage, Since: *Now(), Drain: of}
	}
}

// StartCachesForDrains returns running caches, including the caches that only drains read, over a target that contains
// these objects. The caches are synced before the watch of volume attachments opens. StartCachesForDrains also waits
// for that watch, because IsAttachmentCacheCurrent is false before.
func StartCachesForDrains(t *testing.T, objects ...runtime.Object) (*cache.Cluster, *kubefake.Clientset) {
	t.Helper()
	target := kubefake.NewClientset(objects...)
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(), target, nil)
	require.NoError(t, err)
	require.NoError(t, cluster.WatchDrainResources())
	require.NoError(t, cluster.Start(t.Context()))
	require.Eventually(t, cluster.Target("").IsAttachmentCacheCurrent, EventTimeout, time.Millisecond)
	return cluster, target
}

// NewAttachment attaches a persistent volume to a node. With an empty volume, the attachment names no persistent
// volume.
func NewAttachment(name, node, volume string, change ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	a.Spec.Attacher, a.Spec.NodeName, a.Status.Attached = "csi.example.com", node, true
	if volume != "" {
		a.Spec.Source.PersistentVolumeName = &volume
	}
	for _, f := range change {
		f(a)
	}
	return a
}

func ConfigurationWithDrainTimeout(after time.Duration) *v1alpha1.MachineConfiguration {
	return &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: after}}
}

// WithBlockedCreation gives a machine a condition of this type, because of which the provider creates no instance.
func WithBlockedCreation(kind corev1.NodeConditionType, reason string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		m.Status.Conditions = append(
			m.Status.Conditions,
			corev1.NodeCondition{Type: kind, Status: "False", Reason: reason, Message: "no " + reason},
		)
	}
}

func AsPreservedMachine(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = Now() }

// EventTimeout is the timeout of tests for an event that must happen. EventTimeout is longer than any delay on a busy
// machine.
const EventTimeout = 2 * time.Minute

var Noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// MinutesBeforeNoon returns the time that is this many minutes before Noon.
func MinutesBeforeNoon(minutes int) metav1.Time {
	return metav1.NewTime(Noon.Add(-time.Duration(minutes) * time.Minute))
}

// StartCaches returns running caches over fake API servers that contain these objects. The fakes do not set resource
// versions, so a test must set the resource versions that it needs.
func StartCaches(t *testing.T, nodes []runtime.Object, objects ...runtime.Object) (*cache.Cluster, *fake.Clientset) {
	t.Helper()
	machines := fake.NewSimpleClientset(objects...)
	cluster, err := cache.NewCluster(machines, kubefake.NewClientset(nodes...), nil)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	return cluster, machines
}

func NewMetadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Generation: 1}
}

func NewMachine(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: NewMetadata(name)}
	m.Labels = map[string]string{"app": "web"}
	m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}
	for _, f := range change {
		f(m)
	}
	return m
}

func NewSet(name string, change ...func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
	s := &v1alpha1.MachineSet{ObjectMeta: NewMetadata(name)}
	s.Labels = map[string]string{"app": "web"}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.Spec.Template = NewTemplate()
	for _, f := range change {
		f(s)
	}
	return s
}

func NewDeployment(name string, change ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
	d := &v1alpha1.MachineDeployment{ObjectMeta: NewMetadata(name)}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Spec.Template = NewTemplate()
	for _, f := range change {
		f(d)
	}
	return d
}

// NewPolicy returns a RolloutPolicy that applies to all objects of the namespace.
func NewPolicy(spec v1alpha1.RolloutPolicySpec) *v1alpha1.RolloutPolicy {
	return &v1alpha1.RolloutPolicy{ObjectMeta: NewMetadata("careful"), Spec: spec}
}

func NewTemplate() v1alpha1.MachineTemplateSpec {
	t := v1alpha1.MachineTemplateSpec{}
	t.Labels = map[string]string{"app": "web"}
	t.Annotations = map[string]string{"team": "shop"}
	t.Finalizers = []string{"example.com/backup"}
	t.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}
	return t
}

func WithPhase(p v1alpha1.MachinePhase) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = p }
}

func AsDeletingMachine(m *v1alpha1.Machine) { m.DeletionTimestamp = Now() }

func AsDeletingSet(s *v1alpha1.MachineSet) { s.DeletionTimestamp = Now() }

func WithNodeLabel(name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelNode] = name }
}

// WithInstanceAndNode gives a machine an instance and a node of this name. The node provably belongs to the machine.
func WithInstanceAndNode(name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Labels[v1alpha1.LabelNode], m.Status.NodeName, m.Spec.ProviderID = name, name, "fake:///"+name
	}
}

func ControllerReferences(owner metav1.Object, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind(kind))}
}

// NewNode returns a node named n with these conditions.
func NewNode(conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n"},
		Status:     corev1.NodeStatus{Conditions: conditions},
	}
}

func NewNodeCondition(kind, status string) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type:   corev1.NodeConditionType(kind),
		Status: corev1.ConditionStatus(status),
		Reason: "Because",
	}
}

func Now() *metav1.Time {
	t := metav1.NewTime(time.Now())
	return &t
}

func WithReplacementDue(m *v1alpha1.Machine) {
	m.Status.Conditions = append(
		m.Status.Conditions,
		corev1.NodeCondition{Type: v1alpha1.MachineReplacementDue, Status: "True", Reason: "HealthTimeout"},
	)
}

func WithReplacementGrant(m *v1alpha1.Machine) {
	m.Annotations = map[string]string{v1alpha1.AnnotationReplacementGranted: "2026-01-01T12:00:00Z"}
}

// WithCriticalTaint adds the taint for critical components that are not ready.
func WithCriticalTaint(n *corev1.Node) {
	n.Spec.Taints = append(
		n.Spec.Taints,
		corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: "NoSchedule"},
	)
}

func WithDeploymentOwner(s *v1alpha1.MachineSet) {
	s.OwnerReferences = ControllerReferences(NewDeployment("d"), "MachineDeployment")
}

// MemberFacts returns the facts about a single machine of a set.
func MemberFacts(m *v1alpha1.Machine, s *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) scale.Member {
	return set.ScaleFacts(s, set.RelatedObjects{Members: []*v1alpha1.Machine{m}, Deployment: d}, Noon, 0).Members[0]
}

// MachineFromTemplate returns a machine that matches its set's template.
func MachineFromTemplate(change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	t := NewTemplate()
	return NewMachine(
		"m",
		append(
			[]func(*v1alpha1.Machine){func(m *v1alpha1.Machine) { m.Annotations, m.Spec = t.Annotations, t.Spec }},
			change...)...)
}

// WithAnnotation sets an annotation of a machine.
func WithAnnotation(key, value string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value) }
}

func WithReadyTime(at metav1.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
		m.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True", LastTransitionTime: at}}
	}
}

// WithNodeTemplate gives a machine's node template one label, one annotation and one taint.
func WithNodeTemplate(m *v1alpha1.Machine) {
	m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
	m.Spec.NodeTemplateSpec.Annotations = map[string]string{"team": "shop"}
	m.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "only", Value: "web", Effect: "NoExecute"}}
}

var (
	PreservationStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	PreservationEnd   = metav1.NewTime(PreservationStart.Add(v1alpha1.DefaultPreserveTimeout))
)

// WithPreserveAnnotation sets a machine's annotation preserve to this value.
func WithPreserveAnnotation(value string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Annotations = map[string]string{v1alpha1.AnnotationPreserve: value} }
}

// WithPreservationEnd sets the end of a machine's preservation.
func WithPreservationEnd(end metav1.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &end }
}

// DrainStart is the start of the drains in these tests. RequestTime is the time of a request.
var (
	DrainStart  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	RequestTime = DrainStart.Add(time.Hour)
)

type (
	SetChange        = func(*v1alpha1.MachineSet)
	DeploymentChange = func(*v1alpha1.MachineDeployment)
)

// FieldByName returns the field of a struct with this name; the name of a nested field is Outer.Inner.
func FieldByName(of any, name string) any {
	v := reflect.ValueOf(of)
	for part := range strings.SplitSeq(name, ".") {
		v = v.FieldByName(part)
	}
	return v.Interface()
}

// FieldNames lists the names of a struct's exported fields. The name of a nested field is Outer.Inner; the fields of an
// embedded struct have no prefix. A struct whose type is in whole is listed as one field. Unexported fields are left
// out, because they are derived from exported fields.
func FieldNames(of reflect.Type, prefix string, whole ...reflect.Type) (names []string) {
	for f := range of.Fields() {
		switch {
		case !f.IsExported():
		case f.Type.Kind() != reflect.Struct, f.Type == reflect.TypeFor[time.Time](), slices.Contains(whole, f.Type):
			names = append(names, prefix+f.Name)
		case f.Anonymous:
			names = append(names, FieldNames(f.Type, prefix, whole...)...)
		default:
			names = append(names, FieldNames(f.Type, prefix+f.Name+".", whole...)...)
		}
	}
	return names
}

// FieldNamesWithoutPart lists the names of a struct's exported fields, without the nested fields of part. The part, for
// example "MCM", contains the fields for the kinds of the other API.
func FieldNamesWithoutPart(part string, of reflect.Type) []string {
	return slices.DeleteFunc(FieldNames(of, ""), func(name string) bool { return strings.HasPrefix(name, part+".") })
}

// WithSetAnnotation sets an annotation of a set.
func WithSetAnnotation(key, value string) SetChange {
	return func(s *v1alpha1.MachineSet) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value) }
}

func WithSetLabel(key, value string) SetChange {
	return func(s *v1alpha1.MachineSet) { metav1.SetMetaDataLabel(&s.ObjectMeta, key, value) }
}

func WithNewClass(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "new" }

func CombineChanges[T any](changes ...func(T)) func(T) {
	return func(o T) {
		for _, change := range changes {
			change(o)
		}
	}
}

func RelatedObjectsWithMembers(machines ...*v1alpha1.Machine) set.RelatedObjects {
	return set.RelatedObjects{Members: machines}
}

func AsFrozenSet(s *v1alpha1.MachineSet) { WithSetLabel(v1alpha1.LabelFreeze, "True")(s) }
