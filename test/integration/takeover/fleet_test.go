//go:build integration

package takeover

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

// takeoverPools has the pools of the namespace. The comment on a field says what MCM was doing with the pool's machines
// when MCM was stopped.
type takeoverPools struct {
	runningPool   *rig.Pool // MCM was idle: all machines run and have pods, and one machine is preserved
	rolledOutPool *rig.Pool // MCM was idle: all machines are of the second revision
	rollingPool   *rig.Pool // MCM was rolling out a template: the cloud is creating the first new instance
	// MCM was creating machines: the cloud has begun the creations, and no machine has a provider ID yet
	creatingPool *rig.Pool
	pendingPool  *rig.Pool // MCM was waiting for the node of an instance
	// MCM was creating machines, which are in CrashLoopBackOff because the cloud's quota is full
	quotaPool              *rig.Pool
	failedPool             *rig.Pool // MCM was idle: the machine is Failed and preserved
	unknownPool            *rig.Pool // the machine is Unknown, because its kubelet is not ready
	drainingPool           *rig.Pool // MCM was draining a node, and a budget blocks the drain
	deletingPool           *rig.Pool // MCM was deleting an instance, and the cloud refuses the deletion
	millwrightCreatingPool *rig.Pool // the cloud has begun a creation; Millwright was stopped, not MCM
}

const (
	runningPoolSize, rolledOutPoolSize, rollingPoolSize = 3, 2, 2

	classSmall, classSlowCreation, classSlowBoot, classFullQuota, classRefusedCreation, classRefusedDeletion = "small", "slow", "late", "full", "broken", "gone"

	runningApp, drainingApp = "calm", "going" // names of apps
)

func startComponents(t *testing.T, components ...string) {
	t.Helper()
	for _, name := range components {
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), name))
	}
}

func stopComponents(t *testing.T, components ...string) {
	t.Helper()
	for _, name := range components {
		require.NoError(t, testRig.Stack.StopComponent(t.Context(), name))
	}
}

func killComponents(t *testing.T, components ...string) {
	t.Helper()
	for _, name := range components {
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), name))
	}
}

func repoFolder(t *testing.T, name string) string {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	return filepath.Join(repo, name)
}

// installCRDsOfMCM replaces Millwright's CRDs by the CRDs of MCM's release, which have no defaults and no validation.
func installCRDsOfMCM(t *testing.T) {
	t.Helper()
	list := exec.CommandContext(
		t.Context(),
		"go",
		"list",
		"-m",
		"-f",
		"{{.Dir}}",
		"github.com/gardener/machine-controller-manager",
	)
	list.Dir = repoFolder(t, "devstack/mcm")
	dir, err := list.Output()
	require.NoError(t, err)
	_, err = testRig.Stack.RunKubectl(
		t.Context(),
		"delete",
		"crd",
		"machinedrainrules.machine.sapcloud.io",
		"rolloutpolicies.machine.sapcloud.io",
	)
	require.NoError(t, err)
	_, err = testRig.Stack.RunKubectl(
		t.Context(),
		"replace",
		"-f",
		filepath.Join(strings.TrimSpace(string(dir)), "kubernetes/crds"),
	)
	require.NoError(t, err)
}

// createNamespaceAndClasses makes the namespace with its classes. The cloud refuses to create instances for one of the
// classes.
func createNamespaceAndClasses(t *testing.T) *takeoverPools {
	t.Helper()
	ctx := t.Context()
	_, err := testRig.Kube.CoreV1().
		Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shootNamespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = testRig.Kube.CoreV1().
		Secrets(shootNamespace).
		Create(ctx, rig.NewClassSecret(shootNamespace), metav1.CreateOptions{})
	require.NoError(t, err)
	for name, behaves := range map[string]string{
		classSmall: "", classSlowCreation: `,"createLatency":"20s"`, classSlowBoot: `,"bootLatency":"75s"`, classFullQuota: `,"quota":0`, classRefusedCreation: "", classRefusedDeletion: "",
	} {
		c := rig.NewClass(shootNamespace, `{"region":"eu","zone":"eu-1","instanceType":"small"`+behaves+`}`)
		c.Name = name
		c.NodeTemplate = &v1alpha1.NodeTemplate{
			InstanceType: "small",
			Region:       "eu",
			Zone:         "eu-1",
			Capacity: corev1.ResourceList{
				"cpu":    resource.MustParse("4"),
				"gpu":    resource.MustParse("0"),
				"memory": resource.MustParse("16Gi"),
			},
			VirtualCapacity: corev1.ResourceList{"example.com/dongles": resource.MustParse("2")},
		}
		_, err := testRig.MachineClient.MachineV1alpha1().
			MachineClasses(shootNamespace).
			Create(ctx, c, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	refuseInstanceCreations(t)
	return &takeoverPools{}
}

// refuseInstanceCreations makes the cloud refuse to create instances of a class.
func refuseInstanceCreations(t *testing.T) {
	t.Helper()
	fault := admin.Fault{
		Operation: admin.OperationCreate,
		Class:     shootNamespace + "/" + classRefusedCreation,
		Code:      "Unavailable",
		Message:   "not today",
	}
	require.NoError(t, testRig.Cloud.AddFault(t.Context(), fault))
}

// createPool makes a deployment as Gardener writes deployments: with a strategy, a node template, and minReadySeconds
// of 500, which MCM ignores.
func createPool(
	t *testing.T,
	name, class string,
	replicas int32,
	changes ...func(*v1alpha1.MachineDeployment),
) *rig.Pool {
	t.Helper()
	return testRig.CreatePool(
		t,
		shootNamespace,
		name,
		replicas,
		append([]func(*v1alpha1.MachineDeployment){rig.WithNodeLabel, func(d *v1alpha1.MachineDeployment) {
			d.Spec.MinReadySeconds = 500
			d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
				Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
				RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
					MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
				}},
			}
			spec := &d.Spec.Template.Spec
			spec.Class.Name = class
			spec.NodeTemplateSpec.Labels["worker.gardener.cloud/pool"] = name
			spec.NodeTemplateSpec.Annotations["worker.gardener.cloud/image"] = "flatcar"
			spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{
				{Key: "example.com/soft", Value: "yes", Effect: corev1.TaintEffectPreferNoSchedule},
			}
			spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
				MachineHealthTimeout: &metav1.Duration{Duration: 30 * time.Minute},
			}
		}}, changes...)...)
}

// createPools lets MCM create the machines of the pools, and begins a rollout and a preservation.
func (n *takeoverPools) createPools(t *testing.T) {
	t.Helper()
	n.runningPool = createPool(t, "calm", classSmall, runningPoolSize)
	n.rolledOutPool = createPool(t, "rolled", classSmall, rolledOutPoolSize, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Labels["version"] = "1"
		// MCM creates all new machines at once
		d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(rolledOutPoolSize))
	})
	n.rollingPool = createPool(t, "middle", classSmall, rollingPoolSize)
	n.drainingPool = createPool(t, "going", classSmall, 2)
	n.deletingPool = createPool(t, "gone", classRefusedDeletion, 1)
	n.unknownPool = createPool(t, "sick", classSmall, 1)
	n.quotaPool = createPool(t, "full", classFullQuota, 1)
	n.failedPool = createPool(t, "failed", classRefusedCreation, 1, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.ValuePreserveWhenFailed}
		d.Spec.Template.Spec.MachineCreationTimeout = &metav1.Duration{Duration: 5 * time.Second}
	})
	n.rolledOutPool.AwaitRunningMachines(t, rolledOutPoolSize)
	n.rolledOutPool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	for p, size := range map[*rig.Pool]int{n.runningPool: runningPoolSize, n.rollingPool: rollingPoolSize, n.drainingPool: 2, n.deletingPool: 1, n.unknownPool: 1} {
		p.AwaitRunningMachines(t, size)
	}
	n.runningPool.DeployPods(t, runningApp, runningPoolSize)
	n.drainingPool.DeployPods(t, drainingApp, 2)
	n.drainingPool.CreateBudget(t, drainingApp, 2)
	kept := n.runningPool.Machines(t)[0].Name
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		"annotate",
		"machine",
		kept,
		"--namespace",
		shootNamespace,
		v1alpha1.AnnotationPreserve+"="+v1alpha1.ValuePreserveNow,
	)
	require.NoError(t, err)
}

// awaitSettledPools waits until MCM has preserved a machine, rolled out a pool, and set its finalizer on the nodes.
// awaitSettledPools restarts MCM, because MCM otherwise sets the finalizer on most nodes only three minutes after they
// have joined.
func (n *takeoverPools) awaitSettledPools(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "MCM has preserved a machine, and rolled a pool", func() (bool, any) {
		machines := n.rolledOutPool.Machines(t)
		old := slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return m.Labels["version"] != "2" })
		kept := slices.ContainsFunc(
			n.runningPool.Machines(t),
			func(m v1alpha1.Machine) bool { return m.Status.CurrentStatus.PreserveExpiryTime != nil },
		)
		return kept && !old && len(machines) == rolledOutPoolSize, []bool{kept, old}
	})
	require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.MCMMachineController))
	rig.Eventually(t, "the nodes have MCM's finalizer", func() (bool, any) {
		var without []string
		for _, p := range []*rig.Pool{n.runningPool, n.rolledOutPool, n.rollingPool, n.drainingPool, n.unknownPool} {
			nodes := p.Nodes(t)
			for _, m := range p.Machines(t) {
				named := func(k corev1.Node) bool {
					return k.Name == m.Labels[v1alpha1.LabelNode] && slices.Contains(k.Finalizers, v1alpha1.FinalizerNode)
				}
				if m.DeletionTimestamp == nil && !slices.ContainsFunc(nodes, named) {
					// MCM puts no finalizer on the node of a machine that is being deleted
					without = append(without, m.Name)
				}
			}
		}
		return len(without) == 0, without
	})
}

// startUnfinishableWorkOfMCM makes MCM start work that cannot complete before MCM is stopped.
func (n *takeoverPools) startUnfinishableWorkOfMCM(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	require.NoError(
		t,
		testRig.Cloud.AddFault(
			ctx,
			admin.Fault{
				Operation: admin.OperationDelete,
				Class:     shootNamespace + "/" + classRefusedDeletion,
				Code:      "Unavailable",
				Message:   "not today",
			},
		),
	)
	n.deletingPool.Scale(t, 0)
	host, _ := n.drainingPool.MachineWithPods(t, drainingApp)
	_, err := testRig.Stack.RunKubectl(
		ctx,
		"annotate",
		"--overwrite",
		"machine",
		host.Name,
		"--namespace",
		shootNamespace,
		v1alpha1.AnnotationMachinePriority+"=1",
	)
	require.NoError(t, err)
	n.drainingPool.Scale(t, 1)
	changeNodeLabel(t, n.unknownPool, "node-not-ready.stage.kwok.x-k8s.io=true")
	phases := func(p *rig.Pool, phase v1alpha1.MachinePhase) (count int) {
		for _, m := range p.Machines(t) {
			if m.Status.CurrentStatus.Phase == phase {
				count++
			}
		}
		return count
	}
	rig.Eventually(t, "two machines are being deleted, one is Unknown, one Failed, one refused", func() (bool, any) {
		saw := map[string]int{
			"gone": phases(
				n.deletingPool,
				v1alpha1.MachineTerminating,
			),
			"going":  phases(n.drainingPool, v1alpha1.MachineTerminating),
			"sick":   phases(n.unknownPool, v1alpha1.MachineUnknown),
			"full":   phases(n.quotaPool, v1alpha1.MachineCrashLoopBackOff),
			"failed": phases(n.failedPool, v1alpha1.MachineFailed),
		}
		for _, m := range n.deletingPool.Machines(t) {
			if m.Status.LastOperation.State != v1alpha1.MachineStateFailed {
				return false, m.Status.LastOperation
			}
		}
		return !slices.ContainsFunc(slices.Collect(maps.Values(saw)), func(n int) bool { return n != 1 }), saw
	})
	n.awaitSettledPools(t)
	n.pendingPool = createPool(t, "pending", classSlowBoot, 1)
	n.creatingPool = createPool(t, "slow", classSlowCreation, 2)
	n.rollingPool.Patch(t, `{"spec":{"template":{"spec":{"class":{"name":"`+classSlowCreation+`"}}}}}`)
	rig.Eventually(t, "the cloud creates three instances, and a node is awaited", func() (bool, any) {
		creating := 0
		for _, m := range append(n.creatingPool.Machines(t), n.rollingPool.Machines(t)...) {
			if m.Spec.ProviderID == "" {
				creating++
			}
		}
		instances := len(n.creatingPool.ProviderIDs(t)) + len(n.rollingPool.ProviderIDs(t)) - rollingPoolSize
		pending := phases(n.pendingPool, v1alpha1.MachinePending)
		return creating == 3 && instances == 3 && pending == 1, []int{creating, instances, pending}
	})
}

// startUnfinishableWorkOfMillwright makes Millwright begin work that Millwright cannot finish: a creation, and a drain
// that a budget blocks.
func (n *takeoverPools) startUnfinishableWorkOfMillwright(t *testing.T) {
	t.Helper()
	n.drainingPool.AwaitRunningPods(t, drainingApp, 2)
	n.drainingPool.RelaxBudget(t, drainingApp, 2)
	n.drainingPool.Scale(t, 0)
	n.millwrightCreatingPool = createPool(t, "again", classSlowCreation, 1)
	rig.Eventually(t, "the cloud creates an instance, and a drain is held", func() (bool, any) {
		leaving, making := n.drainingPool.Machines(t), n.millwrightCreatingPool.Machines(t)
		draining := len(leaving) == 1 && leaving[0].Status.Deletion != nil &&
			leaving[0].Status.Deletion.Stage == v1alpha1.MachineDeletionDrain
		creating := len(making) == 1 && making[0].Spec.ProviderID == "" && len(n.millwrightCreatingPool.ProviderIDs(t)) == 1
		return draining && creating, []bool{draining, creating}
	})
}

// changeNodeLabel changes a label of a pool's only node. The label makes the simulated kubelet report NotReady or
// Ready.
func changeNodeLabel(t *testing.T, p *rig.Pool, change string) {
	t.Helper()
	nodes := p.Nodes(t)
	require.Len(t, nodes, 1)
	_, err := testRig.Stack.RunKubectl(t.Context(), "label", "--overwrite", "node", nodes[0].Name, change)
	require.NoError(t, err)
}

// freezeCurrentSet puts the freeze label on the current set of the rolled pool.
func (n *takeoverPools) freezeCurrentSet(t *testing.T) {
	t.Helper()
	for _, s := range n.rolledOutPool.Sets(t) {
		if s.Spec.Replicas > 0 {
			_, err := testRig.Stack.RunKubectl(
				t.Context(),
				"label",
				"machineset",
				s.Name,
				"--namespace",
				shootNamespace,
				v1alpha1.LabelFreeze+"="+v1alpha1.ValueTrue,
			)
			require.NoError(t, err)
		}
	}
}

// removeFaultsAndBudgets removes the faults and budgets that kept MCM from finishing its work.
func (n *takeoverPools) removeFaultsAndBudgets(t *testing.T) {
	t.Helper()
	require.NoError(t, testRig.Cloud.ClearFaults(t.Context()))
	refuseInstanceCreations(t) // the cloud still refuses creations, so that the failed machine stays Failed
	n.drainingPool.RelaxBudget(t, drainingApp, 0)
	changeNodeLabel(t, n.unknownPool, "node-not-ready.stage.kwok.x-k8s.io-")
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses(shootNamespace).
		Patch(t.Context(), classFullQuota, types.MergePatchType, []byte(`{"providerSpec":{"quota":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// poolsState has the parts of the pools' objects that no controller may change without a reason.
type poolsState struct {
	ReadTime                 time.Time // time before the objects were read
	Machines                 map[string]machineState
	Nodes                    map[string]nodeState
	Sets                     map[string]setState
	RevisionsByDeployment    map[string]string // revision by name of the deployment
	MachineNamesByProviderID map[string]string // name of the machine by provider ID
	PodStates                map[types.UID]string
	BootstrapTokens          []string // UID and resourceVersion of each bootstrap token
}

type machineState struct {
	UID                types.UID
	Spec               v1alpha1.MachineSpec
	Labels             map[string]string
	Annotations        map[string]string
	Finalizers         []string
	Phase              v1alpha1.MachinePhase
	PreserveExpiryTime *metav1.Time
}

type nodeState struct {
	UID                 types.UID
	Labels, Annotations map[string]string
	Finalizers          []string
	Spec                corev1.NodeSpec
	Capacity            corev1.ResourceList
	Conditions          map[corev1.NodeConditionType]string
}

type setState struct {
	UID         types.UID
	Spec        v1alpha1.MachineSetSpec
	Annotations map[string]string
	Finalizers  []string
}

// readState reads the state of the pools.
func (n *takeoverPools) readState(t *testing.T, of ...*rig.Pool) poolsState {
	t.Helper()
	if len(of) == 0 {
		of = []*rig.Pool{
			n.runningPool,
			n.rolledOutPool,
			n.rollingPool,
			n.creatingPool,
			n.pendingPool,
			n.quotaPool,
			n.failedPool,
			n.unknownPool,
			n.drainingPool,
			n.deletingPool,
		}
		if n.millwrightCreatingPool != nil {
			of = append(of, n.millwrightCreatingPool)
		}
	}
	s := poolsState{
		time.Now(),
		map[string]machineState{},
		map[string]nodeState{},
		map[string]setState{},
		map[string]string{},
		map[string]string{},
		map[types.UID]string{},
		nil,
	}
	all, err := testRig.Cloud.Instances(t.Context())
	require.NoError(t, err)
	secrets, err := testRig.Kube.CoreV1().
		Secrets(metav1.NamespaceSystem).
		List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	require.NoError(t, err)
	for _, token := range secrets.Items {
		s.BootstrapTokens = append(s.BootstrapTokens, fmt.Sprint(token.UID, " ", token.ResourceVersion))
	}
	for _, p := range of {
		for _, m := range p.Machines(t) {
			is := machineState{
				m.UID,
				m.Spec,
				m.Labels,
				m.Annotations,
				m.Finalizers,
				m.Status.CurrentStatus.Phase,
				m.Status.CurrentStatus.PreserveExpiryTime,
			}
			if is.Phase == v1alpha1.MachineFailed {
				// after each failed creation, MCM removes the expiry time and later writes a new expiry time
				is.PreserveExpiryTime = nil
			}
			s.Machines[m.Name] = is
		}
		for _, k := range p.Nodes(t) {
			conditions := map[corev1.NodeConditionType]string{}
			for _, c := range k.Status.Conditions {
				conditions[c.Type] = fmt.Sprint(c.Status, " ", c.Reason, " ", c.LastTransitionTime.UTC())
			}
			s.Nodes[k.Name] = nodeState{k.UID, k.Labels, k.Annotations, k.Finalizers, k.Spec, k.Status.Capacity, conditions}
		}
		for _, x := range p.Sets(t) {
			if x.Spec.Replicas == 0 {
				// MCM also sets this annotation on old sets without machines
				delete(x.Annotations, v1alpha1.AnnotationPreferNoSchedule)
			}
			s.Sets[x.Name] = setState{x.UID, x.Spec, x.Annotations, x.Finalizers}
		}
		d := p.Deployment(t)
		s.RevisionsByDeployment[p.Name] = d.Annotations[v1alpha1.AnnotationRevision]
		for _, i := range all {
			if strings.HasPrefix(i.Tags.MachineName, p.Name+"-") {
				s.MachineNamesByProviderID[i.ProviderID] = i.Tags.MachineName
			}
		}
		for _, pod := range p.Pods(t, p.Name) {
			s.PodStates[pod.UID] = fmt.Sprint(pod.Spec.NodeName, " ", pod.DeletionTimestamp, " ", pod.Status.StartTime.UTC())
		}
	}
	return s
}

// settleTime is how long the test waits for changes that MCM makes after its start. MCM does not record that it has
// checked an object. Source: MCM checks all machines when it starts, and again after 5 s.
const settleTime = 12 * time.Second

// requireUnchanged requires that the new controller has not changed the machines, sets, instances and pods of these
// pools. The new controller may make only one change to each node: it may add the annotation with the machine's UID.
func (n *takeoverPools) requireUnchanged(t *testing.T, before poolsState, pools ...*rig.Pool) {
	t.Helper()
	mine := func(name string) bool {
		return slices.ContainsFunc(pools, func(p *rig.Pool) bool { return strings.HasPrefix(name, p.Name+"-") })
	}
	after := n.readState(t, pools...)
	for name := range after.Nodes { // a takeover writes only the annotation with the UID of the node's machine
		if before.Nodes[name].Annotations[v1alpha1.AnnotationMachineUID] == "" {
			delete(after.Nodes[name].Annotations, v1alpha1.AnnotationMachineUID)
		}
	}
	requireSameObjects(t, "machine", before.Machines, after.Machines, mine)
	requireSameObjects(t, "node", before.Nodes, after.Nodes, mine)
	requireSameObjects(t, "set", before.Sets, after.Sets, mine)
	for id, was := range before.MachineNamesByProviderID {
		if mine(was) {
			assert.Equal(t, was, after.MachineNamesByProviderID[id], "instance %s", id)
		}
	}
	for uid, was := range before.PodStates {
		if name, _, _ := strings.Cut(was, " "); mine(name) {
			assert.Equal(t, was, after.PodStates[uid], "a pod")
		}
	}
	for _, p := range pools {
		assert.Equal(t, before.RevisionsByDeployment[p.Name], after.RevisionsByDeployment[p.Name], "revision of %s", p.Name)
	}
	for id, name := range after.MachineNamesByProviderID {
		assert.Contains(t, before.MachineNamesByProviderID, id, "a new instance of %s", name)
	}
	written := map[string]int{}
	for _, a := range testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		writes := []string{"create", "update", "patch", "delete"}
		return a.RequestReceivedTimestamp.After(before.ReadTime) && a.ObjectRef.Resource == "nodes" && mine(a.ObjectRef.Name) && slices.Contains(writes, a.Verb) &&
			slices.Contains([]string{component.WorkerIdentity, component.BridgeIdentity, component.MCMIdentity}, a.User.Username)
	}) {
		written[a.ObjectRef.Name]++
		if marks := a.User.Username == component.WorkerIdentity && written[a.ObjectRef.Name] == 1; !marks {
			assert.Fail(t, "a node is written", "%s %s by %s", a.Verb, a.RequestURI, a.User.Username)
		}
	}
	if slices.Contains(pools, n.runningPool) {
		assert.EqualValues(t, runningPoolSize, n.runningPool.Deployment(t).Status.AvailableReplicas)
	}
}

// requireSameObjects requires that the objects of these pools exist as before, unchanged, and that there are no new
// objects.
func requireSameObjects[V any](t *testing.T, kind string, before, after map[string]V, mine func(name string) bool) {
	t.Helper()
	for name, was := range before {
		if mine(name) && assert.Contains(t, after, name, "%s is gone", kind) {
			assert.Equal(t, was, after[name], "%s %s", kind, name)
		}
	}
	for name := range after {
		if mine(name) {
			assert.Contains(t, before, name, "a new %s", kind)
		}
	}
}

// recordObjects writes the objects that MCM has left into the test data of the command migrate.
func (n *takeoverPools) recordObjects(t *testing.T) {
	t.Helper()
	for file, kinds := range map[string]string{
		"objects.json": "machineclasses,machinedeployments,machinesets,machines", "nodes.json": "nodes",
	} {
		out, err := testRig.Stack.RunKubectl(t.Context(), "get", kinds, "--namespace", shootNamespace, "-o", "json")
		require.NoError(t, err)
		var list map[string]any
		require.NoError(t, json.Unmarshal(out, &list))
		items, isList := list["items"].([]any)
		require.True(t, isList)
		for _, item := range items {
			if object, isObject := item.(map[string]any); isObject {
				if metadata, has := object["metadata"].(map[string]any); has {
					delete(metadata, "managedFields")
				}
			}
		}
		text, err := json.MarshalIndent(list, "", " ")
		require.NoError(t, err)
		require.NoError(
			t,
			os.WriteFile(filepath.Join(repoFolder(t, "starter/migrate/testdata"), file), append(text, '\n'), 0o600),
		)
	}
}
