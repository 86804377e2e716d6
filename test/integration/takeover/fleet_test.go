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

// fleet are the pools of the namespace, by what MCM was doing with their machines when it was stopped.
type fleet struct {
	calm    *rig.Pool // nothing: all run, with pods; one is preserved
	rolled  *rig.Pool // nothing: they are of the second revision
	middle  *rig.Pool // a rollout: the first new instance is being created
	slow    *rig.Pool // creations: the cloud has begun them, and no machine says so
	pending *rig.Pool // waiting for the node of an instance
	full    *rig.Pool // creations that the cloud refuses for its quota: CrashLoopBackOff
	failed  *rig.Pool // nothing: Failed, and preserved
	sick    *rig.Pool // Unknown: the kubelet is not ready
	going   *rig.Pool // a drain that a budget holds
	gone    *rig.Pool // the deletion of an instance, which the cloud refuses
	again   *rig.Pool // not MCM, but Millwright: a creation that the cloud has begun
}

const (
	calmSize, rolledSize, middleSize = 3, 2, 2

	classSmall, classSlow, classLate, classFull, classBroken, classGone = "small", "slow", "late", "full", "broken", "gone"

	podsCalm, podsGoing = "calm", "going" // apps
)

func start(t *testing.T, components ...string) {
	t.Helper()
	for _, name := range components {
		require.NoError(t, r.Stack.Start(t.Context(), name))
	}
}

func stop(t *testing.T, components ...string) {
	t.Helper()
	for _, name := range components {
		require.NoError(t, r.Stack.Stop(t.Context(), name))
	}
}

func kill(t *testing.T, components ...string) {
	t.Helper()
	for _, name := range components {
		require.NoError(t, r.Stack.Kill(t.Context(), name))
	}
}

func folder(t *testing.T, name string) string {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	return filepath.Join(repo, name)
}

// useCRDsOfMCM replaces the CRDs by those of MCM's release, which have no defaults and no validation.
func useCRDsOfMCM(t *testing.T) {
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
	list.Dir = folder(t, "devstack/mcm")
	dir, err := list.Output()
	require.NoError(t, err)
	_, err = r.Stack.Kubectl(
		t.Context(),
		"delete",
		"crd",
		"machinedrainrules.machine.sapcloud.io",
		"rolloutpolicies.machine.sapcloud.io",
	)
	require.NoError(t, err)
	_, err = r.Stack.Kubectl(
		t.Context(),
		"replace",
		"-f",
		filepath.Join(strings.TrimSpace(string(dir)), "kubernetes/crds"),
	)
	require.NoError(t, err)
}

// newNamespace makes the namespace with its classes. The cloud refuses to create for one of them.
func newNamespace(t *testing.T) *fleet {
	t.Helper()
	ctx := t.Context()
	_, err := r.Kube.CoreV1().
		Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = r.Kube.CoreV1().Secrets(namespace).Create(ctx, rig.Credentials(namespace), metav1.CreateOptions{})
	require.NoError(t, err)
	for name, behaves := range map[string]string{
		classSmall: "", classSlow: `,"createLatency":"20s"`, classLate: `,"bootLatency":"75s"`, classFull: `,"quota":0`, classBroken: "", classGone: "",
	} {
		c := rig.Class(namespace, `{"region":"eu","zone":"eu-1","instanceType":"small"`+behaves+`}`)
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
		_, err := r.Machines.MachineV1alpha1().MachineClasses(namespace).Create(ctx, c, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	breakCreations(t)
	return &fleet{}
}

// breakCreations lets the cloud refuse to create instances of a class.
func breakCreations(t *testing.T) {
	t.Helper()
	fault := admin.Fault{
		Operation: admin.Create,
		Class:     namespace + "/" + classBroken,
		Code:      "Unavailable",
		Message:   "not today",
	}
	require.NoError(t, r.Cloud.AddFault(t.Context(), fault))
}

// pool makes a deployment as Gardener writes them: with a strategy, an order of 500 s that MCM ignores, and a node
// template.
func pool(t *testing.T, name, class string, replicas int32, changes ...func(*v1alpha1.MachineDeployment)) *rig.Pool {
	t.Helper()
	return r.Pool(
		t,
		namespace,
		name,
		replicas,
		append([]func(*v1alpha1.MachineDeployment){rig.LabelNodes, func(d *v1alpha1.MachineDeployment) {
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

// live lets MCM make the pools, and begins a rollout and a preservation.
func (n *fleet) live(t *testing.T) {
	t.Helper()
	n.calm = pool(t, "calm", classSmall, calmSize)
	n.rolled = pool(t, "rolled", classSmall, rolledSize, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Labels["version"] = "1"
		d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(rolledSize)) // all at once
	})
	n.middle = pool(t, "middle", classSmall, middleSize)
	n.going = pool(t, "going", classSmall, 2)
	n.gone = pool(t, "gone", classGone, 1)
	n.sick = pool(t, "sick", classSmall, 1)
	n.full = pool(t, "full", classFull, 1)
	n.failed = pool(t, "failed", classBroken, 1, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.ValuePreserveWhenFailed}
		d.Spec.Template.Spec.MachineCreationTimeout = &metav1.Duration{Duration: 5 * time.Second}
	})
	n.rolled.AwaitRunning(t, rolledSize)
	n.rolled.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	for p, size := range map[*rig.Pool]int{n.calm: calmSize, n.middle: middleSize, n.going: 2, n.gone: 1, n.sick: 1} {
		p.AwaitRunning(t, size)
	}
	n.calm.Deploy(t, podsCalm, calmSize)
	n.going.Deploy(t, podsGoing, 2)
	n.going.Budget(t, podsGoing, 2)
	kept := n.calm.Machines(t)[0].Name
	_, err := r.Stack.Kubectl(
		t.Context(),
		"annotate",
		"machine",
		kept,
		"--namespace",
		namespace,
		v1alpha1.AnnotationPreserve+"="+v1alpha1.ValuePreserveNow,
	)
	require.NoError(t, err)
}

// settled returns when MCM has preserved a machine, rolled a pool, and put its finalizer on the nodes. Else it does
// that on most nodes three minutes after they have joined.
func (n *fleet) settled(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "MCM has preserved a machine, and rolled a pool", func() (bool, any) {
		machines := n.rolled.Machines(t)
		old := slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return m.Labels["version"] != "2" })
		kept := slices.ContainsFunc(
			n.calm.Machines(t),
			func(m v1alpha1.Machine) bool { return m.Status.CurrentStatus.PreserveExpiryTime != nil },
		)
		return kept && !old && len(machines) == rolledSize, []bool{kept, old}
	})
	require.NoError(t, r.Stack.Restart(t.Context(), component.MCMMachines))
	rig.Eventually(t, "the nodes have MCM's finalizer", func() (bool, any) {
		var without []string
		for _, p := range []*rig.Pool{n.calm, n.rolled, n.middle, n.going, n.sick} {
			nodes := p.Nodes(t)
			for _, m := range p.Machines(t) {
				named := func(k corev1.Node) bool {
					return k.Name == m.Labels[v1alpha1.LabelNode] && slices.Contains(k.Finalizers, v1alpha1.FinalizerNode)
				}
				if m.DeletionTimestamp == nil && !slices.ContainsFunc(nodes, named) {
					// MCM puts it on no node of a machine that goes
					without = append(without, m.Name)
				}
			}
		}
		return len(without) == 0, without
	})
}

// unsettle lets MCM begin what it will not end.
func (n *fleet) unsettle(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	require.NoError(
		t,
		r.Cloud.AddFault(
			ctx,
			admin.Fault{Operation: admin.Delete, Class: namespace + "/" + classGone, Code: "Unavailable", Message: "not today"},
		),
	)
	n.gone.Scale(t, 0)
	host, _ := n.going.Host(t, podsGoing)
	_, err := r.Stack.Kubectl(
		ctx,
		"annotate",
		"--overwrite",
		"machine",
		host.Name,
		"--namespace",
		namespace,
		v1alpha1.AnnotationMachinePriority+"=1",
	)
	require.NoError(t, err)
	n.going.Scale(t, 1)
	kubelet(t, n.sick, "node-not-ready.stage.kwok.x-k8s.io=true")
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
				n.gone,
				v1alpha1.MachineTerminating,
			),
			"going":  phases(n.going, v1alpha1.MachineTerminating),
			"sick":   phases(n.sick, v1alpha1.MachineUnknown),
			"full":   phases(n.full, v1alpha1.MachineCrashLoopBackOff),
			"failed": phases(n.failed, v1alpha1.MachineFailed),
		}
		for _, m := range n.gone.Machines(t) {
			if m.Status.LastOperation.State != v1alpha1.MachineStateFailed {
				return false, m.Status.LastOperation
			}
		}
		return !slices.ContainsFunc(slices.Collect(maps.Values(saw)), func(n int) bool { return n != 1 }), saw
	})
	n.settled(t)
	n.pending = pool(t, "pending", classLate, 1)
	n.slow = pool(t, "slow", classSlow, 2)
	n.middle.Patch(t, `{"spec":{"template":{"spec":{"class":{"name":"`+classSlow+`"}}}}}`)
	rig.Eventually(t, "the cloud creates three instances, and a node is awaited", func() (bool, any) {
		creating := 0
		for _, m := range append(n.slow.Machines(t), n.middle.Machines(t)...) {
			if m.Spec.ProviderID == "" {
				creating++
			}
		}
		instances := len(n.slow.Instances(t)) + len(n.middle.Instances(t)) - middleSize
		return creating == 3 && instances == 3 && phases(n.pending, v1alpha1.MachinePending) == 1, []int{creating, instances}
	})
}

// unsettleAgain lets Millwright begin what it will not end: a creation, and a drain that a budget holds.
func (n *fleet) unsettleAgain(t *testing.T) {
	t.Helper()
	n.going.AwaitPods(t, podsGoing, 2)
	n.going.RelaxBudget(t, podsGoing, 2)
	n.going.Scale(t, 0)
	n.again = pool(t, "again", classSlow, 1)
	rig.Eventually(t, "the cloud creates an instance, and a drain is held", func() (bool, any) {
		leaving, making := n.going.Machines(t), n.again.Machines(t)
		draining := len(leaving) == 1 && leaving[0].Status.Deletion != nil &&
			leaving[0].Status.Deletion.Stage == v1alpha1.MachineDeletionDrain
		creating := len(making) == 1 && making[0].Spec.ProviderID == "" && len(n.again.Instances(t)) == 1
		return draining && creating, []bool{draining, creating}
	})
}

// kubelet changes a label of a pool's only node, by which the simulated kubelet falls ill or recovers.
func kubelet(t *testing.T, p *rig.Pool, change string) {
	t.Helper()
	nodes := p.Nodes(t)
	require.Len(t, nodes, 1)
	_, err := r.Stack.Kubectl(t.Context(), "label", "--overwrite", "node", nodes[0].Name, change)
	require.NoError(t, err)
}

// freeze puts the label on the current set of a pool.
func (n *fleet) freeze(t *testing.T) {
	t.Helper()
	for _, s := range n.rolled.Sets(t) {
		if s.Spec.Replicas > 0 {
			_, err := r.Stack.Kubectl(
				t.Context(),
				"label",
				"machineset",
				s.Name,
				"--namespace",
				namespace,
				v1alpha1.LabelFreeze+"="+v1alpha1.ValueTrue,
			)
			require.NoError(t, err)
		}
	}
}

// heal removes the obstacles that kept MCM from ending its work.
func (n *fleet) heal(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Cloud.ClearFaults(t.Context()))
	breakCreations(t) // the failed machine stays
	n.going.RelaxBudget(t, podsGoing, 0)
	kubelet(t, n.sick, "node-not-ready.stage.kwok.x-k8s.io-")
	_, err := r.Machines.MachineV1alpha1().
		MachineClasses(namespace).
		Patch(t.Context(), classFull, types.MergePatchType, []byte(`{"providerSpec":{"quota":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// state has the objects of the pools that nobody may change without a reason.
type state struct {
	At        time.Time // before it was read
	Machines  map[string]machine
	Nodes     map[string]node
	Sets      map[string]set
	Revisions map[string]string // of deployments
	Instances map[string]string // name of the machine by provider ID
	Pods      map[types.UID]string
	Tokens    []string // UIDs and versions of the bootstrap tokens
}

type machine struct {
	UID         types.UID
	Spec        v1alpha1.MachineSpec
	Labels      map[string]string
	Annotations map[string]string
	Finalizers  []string
	Phase       v1alpha1.MachinePhase
	Expires     *metav1.Time
}

type node struct {
	UID                 types.UID
	Labels, Annotations map[string]string
	Finalizers          []string
	Spec                corev1.NodeSpec
	Capacity            corev1.ResourceList
	Conditions          map[corev1.NodeConditionType]string
}

type set struct {
	UID         types.UID
	Spec        v1alpha1.MachineSetSpec
	Annotations map[string]string
	Finalizers  []string
}

// look reads the state of the pools.
func (n *fleet) look(t *testing.T, of ...*rig.Pool) state {
	t.Helper()
	if len(of) == 0 {
		of = []*rig.Pool{n.calm, n.rolled, n.middle, n.slow, n.pending, n.full, n.failed, n.sick, n.going, n.gone}
		if n.again != nil {
			of = append(of, n.again)
		}
	}
	s := state{
		time.Now(),
		map[string]machine{},
		map[string]node{},
		map[string]set{},
		map[string]string{},
		map[string]string{},
		map[types.UID]string{},
		nil,
	}
	all, err := r.Cloud.Instances(t.Context())
	require.NoError(t, err)
	secrets, err := r.Kube.CoreV1().
		Secrets(metav1.NamespaceSystem).
		List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	require.NoError(t, err)
	for _, token := range secrets.Items {
		s.Tokens = append(s.Tokens, fmt.Sprint(token.UID, " ", token.ResourceVersion))
	}
	for _, p := range of {
		for _, m := range p.Machines(t) {
			is := machine{
				m.UID,
				m.Spec,
				m.Labels,
				m.Annotations,
				m.Finalizers,
				m.Status.CurrentStatus.Phase,
				m.Status.CurrentStatus.PreserveExpiryTime,
			}
			if is.Phase == v1alpha1.MachineFailed {
				is.Expires = nil // each failed creation of MCM removes it, and MCM writes a later one
			}
			s.Machines[m.Name] = is
		}
		for _, k := range p.Nodes(t) {
			conditions := map[corev1.NodeConditionType]string{}
			for _, c := range k.Status.Conditions {
				conditions[c.Type] = fmt.Sprint(c.Status, " ", c.Reason, " ", c.LastTransitionTime.UTC())
			}
			s.Nodes[k.Name] = node{k.UID, k.Labels, k.Annotations, k.Finalizers, k.Spec, k.Status.Capacity, conditions}
		}
		for _, x := range p.Sets(t) {
			if x.Spec.Replicas == 0 {
				delete(x.Annotations, v1alpha1.AnnotationPreferNoSchedule) // MCM marks old sets without machines, too
			}
			s.Sets[x.Name] = set{x.UID, x.Spec, x.Annotations, x.Finalizers}
		}
		d := p.Deployment(t)
		s.Revisions[p.Name] = d.Annotations[v1alpha1.AnnotationRevision]
		for _, i := range all {
			if strings.HasPrefix(i.Tags.Machine, p.Name+"-") {
				s.Instances[i.ProviderID] = i.Tags.Machine
			}
		}
		for _, pod := range p.Pods(t, p.Name) {
			s.Pods[pod.UID] = fmt.Sprint(pod.Spec.NodeName, " ", pod.DeletionTimestamp, " ", pod.Status.StartTime.UTC())
		}
	}
	return s
}

// settles is how long MCM has to touch something, which records nowhere that it has looked. Source: it looks at all
// machines when it starts, and again after 5 s.
const settles = 12 * time.Second

// untouched requires that nothing of these pools has been changed by whoever took over: no machine, no set, no
// instance, no pod, and of each node nothing but the mark whose it is, written once.
func (n *fleet) untouched(t *testing.T, before state, pools ...*rig.Pool) {
	t.Helper()
	mine := func(name string) bool {
		return slices.ContainsFunc(pools, func(p *rig.Pool) bool { return strings.HasPrefix(name, p.Name+"-") })
	}
	after := n.look(t, pools...)
	for name := range after.Nodes { // the one thing that a takeover writes: whose the node is
		if before.Nodes[name].Annotations[v1alpha1.AnnotationMachineUID] == "" {
			delete(after.Nodes[name].Annotations, v1alpha1.AnnotationMachineUID)
		}
	}
	same(t, "machine", before.Machines, after.Machines, mine)
	same(t, "node", before.Nodes, after.Nodes, mine)
	same(t, "set", before.Sets, after.Sets, mine)
	for id, was := range before.Instances {
		if mine(was) {
			assert.Equal(t, was, after.Instances[id], "instance %s", id)
		}
	}
	for uid, was := range before.Pods {
		if name, _, _ := strings.Cut(was, " "); mine(name) {
			assert.Equal(t, was, after.Pods[uid], "a pod")
		}
	}
	for _, p := range pools {
		assert.Equal(t, before.Revisions[p.Name], after.Revisions[p.Name], "revision of %s", p.Name)
	}
	for id, name := range after.Instances {
		assert.Contains(t, before.Instances, id, "a new instance of %s", name)
	}
	written := map[string]int{}
	for _, a := range r.Audit(t, func(a rig.Audited) bool {
		writes := []string{"create", "update", "patch", "delete"}
		return a.RequestReceivedTimestamp.After(before.At) && a.ObjectRef.Resource == "nodes" && mine(a.ObjectRef.Name) && slices.Contains(writes, a.Verb) &&
			slices.Contains([]string{component.WorkerIdentity, component.BridgeIdentity, component.MCMIdentity}, a.User.Username)
	}) {
		written[a.ObjectRef.Name]++
		if marks := a.User.Username == component.WorkerIdentity && written[a.ObjectRef.Name] == 1; !marks {
			assert.Fail(t, "a node is written", "%s %s by %s", a.Verb, a.RequestURI, a.User.Username)
		}
	}
	if slices.Contains(pools, n.calm) {
		assert.EqualValues(t, calmSize, n.calm.Deployment(t).Status.AvailableReplicas)
	}
}

// same requires that the objects of these pools are those of before, as they were.
func same[V any](t *testing.T, kind string, before, after map[string]V, mine func(name string) bool) {
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

// record writes the objects as MCM left them into the test data of the command.
func (n *fleet) record(t *testing.T) {
	t.Helper()
	for file, kinds := range map[string]string{
		"objects.json": "machineclasses,machinedeployments,machinesets,machines", "nodes.json": "nodes",
	} {
		out, err := r.Stack.Kubectl(t.Context(), "get", kinds, "--namespace", namespace, "-o", "json")
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
			os.WriteFile(filepath.Join(folder(t, "starter/migrate/testdata"), file), append(text, '\n'), 0o600),
		)
	}
}
