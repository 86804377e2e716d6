// Package takeover decides what has to be done before Millwright takes a namespace over from machine-controller-manager
// (MCM), what Millwright will do there, and the steps of the way there and back. It does not decide about single
// objects: the facts contain what Millwright would decide about each of them.
package takeover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/phrase"
)

// Facts describe a namespace, as it was read at one moment.
type Facts struct {
	Now       time.Time
	Namespace string
	AsMCM     bool // worker and bridge will run with --as-mcm

	Others       []Other       // other namespaces with Machines that the flags of worker and bridge do not exclude
	Leases       []Lease       // of MCM's processes
	Controllers  []Controller  // Deployments that run MCM
	MissingKinds []string      // kinds of Millwright that the API server does not serve
	Unreadable   []string      // what could not be read, and why
	Classes      []Class       // those that exist, and those that only a template or a machine names
	Deployments  []Deployment  // MachineDeployments
	Sets         []Set         // MachineSets
	Machines     []Machine     // Machines
	Refused      []RefusedSpec // templates whose machines the API server rejects
}

// Lease is the Lease of a leader election.
type Lease struct {
	Name, Holder string
	Renewed      time.Time
	Lasts        time.Duration // how long it is valid after a renewal
}

// Controller is a Deployment whose pods are MCM.
type Controller struct {
	Name     string
	Replicas int // wanted, or there
}

// Class is a MachineClass.
type Class struct {
	Name     string
	Exists   bool
	Provider string // in lower case
	BadName  string // why Provider cannot be the name of a provider; empty: it can
	Machines int    // number of machines that name the class
	Lenders  []Lender
}

// Lender is a Secret of another namespace that a class names.
type Lender struct {
	Namespace, Name string
	Allows          bool   // classes of the class's namespace may use it
	Allowed         string // value of its annotation
	Unread          string // why it could not be read; empty: it was
}

// RefusedSpec is a template whose machines the API server rejects.
type RefusedSpec struct{ Object, Why string }

// Deployment is a MachineDeployment, with what Millwright would decide about it now.
type Deployment struct {
	Name     string
	Invalid  string // why Millwright cannot follow its spec; empty: it can
	MinReady time.Duration
	Frozen   bool
	NewSet   bool   // no set has its template: another one is created
	Rolling  bool   // machines of other templates are replaced
	Why      string // what is done next
}

// Set is a MachineSet, with what Millwright would decide about it now.
type Set struct {
	Name             string
	Alone            bool // no deployment controls it
	Invalid          string
	MinReady         time.Duration
	Frozen           bool
	Creates, Deletes int    // machines
	Relabels         int    // machines that would be adopted, released, or get labels and annotations of the template
	Why              string // what is done next
}

// Machine is a Machine, with what Millwright would decide about it now.
type Machine struct {
	Name         string
	Node         string // name; empty: not known
	ProviderID   string
	NodeInstance string // provider ID of that node, if it names another instance
	Deleting     bool
	Need         attention.Need
	Why          string
	Fails        bool // its phase becomes Failed, or is: it is replaced
	Kept         bool // it is preserved
}

// Weight is how much a finding matters.
type Weight string

// The weights, the heaviest first.
const (
	First Weight = "first" // has to be done before Millwright starts
	Note  Weight = "note"  // Millwright does this, or behaves like this, when it starts: nothing has to be done before
	OK    Weight = "ok"
)

// Finding is one thing that was found out.
type Finding struct {
	Weight Weight `json:"weight"`
	Object string `json:"object"`       // kind/name, or the part of the installation that the finding is about
	Says   string `json:"says"`         // one sentence
	Do     string `json:"do,omitempty"` // what to do; empty: nothing
}

// mostNames is how many objects one finding names. Source: a line of a terminal.
const mostNames = 5

// Decide returns what was found, the heaviest first.
func Decide(f Facts) []Finding {
	all := slices.Concat(
		f.installation(),
		f.others(),
		f.classes(),
		f.refused(),
		f.deployments(),
		f.sets(),
		f.ties(),
		f.machines(),
	)
	order := []Weight{First, Note, OK}
	slices.SortStableFunc(
		all,
		func(a, b Finding) int { return slices.Index(order, a.Weight) - slices.Index(order, b.Weight) },
	)
	return all
}

// Blockers returns the number of findings that have to be done first.
func Blockers(findings []Finding) (n int) {
	for _, f := range findings {
		if f.Weight == First {
			n++
		}
	}
	return n
}

// installation says whether MCM has stopped, and whether the API server knows Millwright's kinds.
func (f Facts) installation() (all []Finding) {
	const stop = "stop it, and wait until its calls to the cloud have ended"
	working := f.working()
	for _, w := range working {
		all = append(all, Finding{First, "machine-controller-manager", w, stop})
	}
	if len(working) == 0 {
		all = append(all, Finding{OK, "machine-controller-manager", "it is not at work in namespace " + f.Namespace, ""})
	}
	if len(f.MissingKinds) > 0 {
		all = append(all, Finding{
			First, "CRDs", "the API server has no " + phrase.List(f.MissingKinds, mostNames, ", "),
			"kubectl apply -k deploy/crds; machine-controller-manager works with these CRDs, too",
		})
	} else {
		all = append(all, Finding{OK, "CRDs", "the API server has all kinds of Millwright", ""})
	}
	for _, u := range f.Unreadable {
		all = append(all, Finding{First, "rights", u, "use a kubeconfig that may do this: what is not read is not checked"})
	}
	return all
}

// working returns the signs that MCM is at work, one sentence each; none: it is not.
func (f Facts) working() (signs []string) {
	for _, l := range f.Leases {
		if f.isFresh(l) {
			signs = append(
				signs,
				fmt.Sprintf("it is at work: %s renewed Lease %s at %s", l.Holder, l.Name, phrase.Clock(l.Renewed, f.Now)),
			)
		}
	}
	for _, c := range f.Controllers {
		if c.Replicas > 0 {
			signs = append(signs, fmt.Sprintf("Deployment %s has %s", c.Name, phrase.Count(c.Replicas, "replica")))
		}
	}
	return signs
}

func (f Facts) classes() (all []Finding) {
	well := 0
	for _, c := range f.Classes {
		object := "machineclass/" + c.Name
		switch {
		case !c.Exists:
			all = append(all, Finding{
				Note,
				object,
				fmt.Sprintf("it does not exist, and %s it: their instances can be neither created nor deleted", named(c.Machines)),
				"create the class, if its machines are wanted",
			})
		case c.Provider == "":
			all = append(all, Finding{
				First, object, "it has no provider: Millwright does not know which worker to ask for its instances",
				"set the field provider to the name of the cloud, such as aws: the worker of that name serves it",
			})
		case c.BadName != "":
			all = append(all, Finding{First, object, c.BadName, "change the field provider"})
		default:
			well++
		}
		for _, l := range c.Lenders {
			all = append(all, f.lender(object, l)...)
		}
	}
	return append(all, calm(well, "machineclasses", "class names its provider", "classes name their providers")...)
}

// lender says what a Secret of another namespace lacks; none if it lacks nothing.
func (f Facts) lender(object string, l Lender) []Finding {
	const annotation = vocabulary.AnnotationAllowedClassNamespaces
	secret := "it uses Secret " + l.Namespace + "/" + l.Name + " of another namespace, which "
	refused := "instances of its machines can be neither created nor deleted"
	flag := ", or start the workers of providers with --allow-secrets-without-consent"
	switch {
	case l.Unread != "":
		says := fmt.Sprintf("%scannot be read: %s; without the annotation %s, %s", secret, l.Unread, annotation, refused)
		do := fmt.Sprintf("let its owner add %s to the annotation %s", f.Namespace, annotation)
		return []Finding{{Note, object, says, do + flag}}
	case !l.Allows:
		value := strings.Join(phrase.Parts(l.Allowed, f.Namespace), ",")
		do := fmt.Sprintf(
			"kubectl annotate secret --namespace %s %s --overwrite '%s=%s'",
			l.Namespace,
			l.Name,
			annotation,
			value,
		)
		return []Finding{{First, object, secret + "does not allow that: " + refused, do + flag}}
	default:
		return nil
	}
}

func named(machines int) string {
	return phrase.Count(machines, "machine") + phrase.OneOf(machines, " names", " name")
}

// calm returns the finding about the n objects of a kind that need no other finding; none if n is 0.
func calm(n int, object, one, several string) []Finding {
	if n == 0 {
		return nil
	}
	return []Finding{{OK, object, fmt.Sprint(n, " ", phrase.OneOf(n, one, several)), ""}}
}

func (f Facts) refused() (all []Finding) {
	for _, r := range f.Refused {
		all = append(all, Finding{
			First, r.Object, "the API server takes no machine of its template: " + r.Why,
			"correct this field of the template",
		})
	}
	return all
}

func (f Facts) deployments() (all []Finding) {
	rest := 0
	for _, d := range f.Deployments {
		object, before := "machinedeployment/"+d.Name, len(all)
		if d.Invalid != "" {
			all = append(
				all,
				Finding{First, object, d.Invalid, "correct its spec: Millwright changes nothing of an invalid deployment"},
			)
		}
		switch {
		case d.NewSet:
			all = append(
				all,
				Finding{Note, object, "none of its sets has its template: a rollout begins; " + d.Why, pause(d.Name, f.Namespace)},
			)
		case d.Rolling:
			all = append(
				all,
				Finding{Note, object, "a rollout is in progress, and goes on: " + d.Why, pause(d.Name, f.Namespace)},
			)
		}
		all = append(all, f.behaviour(object, d.MinReady, d.Frozen)...)
		if len(all) == before {
			rest++
		}
	}
	return append(
		all,
		calm(
			rest,
			"machinedeployments",
			"deployment keeps its sets and revisions",
			"deployments keep their sets and revisions",
		)...)
}

// pause says how to keep a rollout from replacing machines.
func pause(name, namespace string) string {
	return fmt.Sprintf("to replace no machine now: millwright rollout pause %s/%s", namespace, name)
}

// behaviour says where Millwright without --as-mcm treats an object differently from MCM.
func (f Facts) behaviour(object string, minReady time.Duration, frozen bool) (all []Finding) {
	if f.AsMCM {
		return nil
	}
	if minReady > 0 {
		all = append(all, Finding{
			Note,
			object,
			fmt.Sprintf(
				"minReadySeconds is obeyed: a machine is available %s after it is ready, and not at once",
				phrase.Span(minReady),
			),
			"start worker and bridge with --as-mcm, or set minReadySeconds to 0",
		})
	}
	if frozen {
		all = append(all, Finding{
			Note, object, "it is frozen, and stays so: it creates no machines",
			"annotate it with safety.machine.sapcloud.io/unfreeze, or start worker and bridge with --as-mcm",
		})
	}
	return all
}

func (f Facts) sets() (all []Finding) {
	rest := 0
	for _, s := range f.Sets {
		object, before := "machineset/"+s.Name, len(all)
		if s.Invalid != "" {
			all = append(
				all,
				Finding{First, object, s.Invalid, "correct its spec: Millwright changes nothing of an invalid set"},
			)
		}
		work := phrase.Parts(
			phrase.If(s.Creates > 0, "%s to create", phrase.Count(s.Creates, "machine")),
			phrase.If(s.Deletes > 0, "%s to delete", phrase.Count(s.Deletes, "machine")),
			phrase.If(s.Relabels > 0, "%s to relabel", phrase.Count(s.Relabels, "machine")),
		)
		if len(work) > 0 {
			all = append(
				all,
				Finding{
					Note,
					object,
					"it is not of the wanted size or template: " + phrase.List(work, mostNames, ", ") + "; " + s.Why,
					"",
				},
			)
		}
		if s.Alone {
			all = append(all, f.behaviour(object, s.MinReady, s.Frozen)...)
		} else {
			all = append(all, f.behaviour(object, 0, s.Frozen)...)
		}
		if len(all) == before {
			rest++
		}
	}
	return append(all, calm(rest, "machinesets", "set has the wanted size", "sets have the wanted sizes")...)
}

// ties finds machines that share an instance or a node, and nodes that belong to another instance than their machine.
func (f Facts) ties() (all []Finding) {
	shared := func(what string, of func(Machine) string) {
		byTie := map[string][]string{}
		for _, m := range f.Machines {
			if tie := of(m); tie != "" {
				byTie[tie] = append(byTie[tie], m.Name)
			}
		}
		for _, m := range f.Machines { // in their order
			tie := of(m)
			names := byTie[tie]
			if len(names) < 2 || names[0] != m.Name {
				continue
			}
			all = append(all, Finding{
				First,
				"machine/" + m.Name,
				fmt.Sprintf("machines %s name the same %s %s", phrase.List(names, mostNames, ", "), what, tie),
				"find out whose it is; to remove the object of the other machine and nothing else: millwright drain abandon-instance",
			})
		}
	}
	shared("instance", func(m Machine) string { return m.ProviderID })
	shared("node", func(m Machine) string { return m.Node })
	for _, m := range f.Machines {
		if m.NodeInstance != "" {
			all = append(all, Finding{
				First,
				"machine/" + m.Name,
				fmt.Sprintf(
					"its node %s belongs to instance %s, and the machine names %s: the node would not be drained before the instance is deleted",
					m.Node,
					m.NodeInstance,
					m.ProviderID,
				),
				"find out which of the two is right, and correct the other one",
			})
		}
	}
	return all
}

// group is what is said about the machines with the same need.
type group struct{ says, do string }

// groups are what Millwright does about machines that are not as they should be.
func groups() map[attention.Need]group {
	return map[attention.Need]group{
		attention.Instance: {
			"being created: Millwright adopts the instance that has the name of the machine, or creates one",
			"",
		},
		attention.Name:     {"with a node whose name is not recorded yet: it is recorded", ""},
		attention.Node:     {"waiting for a node to join: Millwright waits on, and the creation timeout runs on", ""},
		attention.Recovery: {"unhealthy: Millwright waits on, and the health timeout runs on", ""},
		attention.Sync: {
			"with a node that is not as template and class want it: Millwright changes it, as machine-controller-manager would",
			"",
		},
		attention.Preserve: {"with a preservation that begins or ends: machine and node are changed", ""},
		attention.InPlace:  {"updated in place: the update goes on", ""},
		attention.Drain:    {"with a node that has to be empty: its drain goes on", ""},
		attention.Deletion: {
			"being deleted: Millwright goes on; a node that is empty is drained within seconds, and then the instance is deleted",
			"",
		},
	}
}

func (f Facts) machines() (all []Finding) {
	type key struct {
		need  attention.Need
		fails bool
	}
	members := map[key][]Machine{}
	rest, kept := 0, 0
	for _, m := range f.Machines {
		switch _, grouped := groups()[m.Need]; {
		case m.Fails:
			members[key{fails: true}] = append(members[key{fails: true}], m)
		case grouped:
			members[key{need: m.Need}] = append(members[key{need: m.Need}], m)
		default: // nothing, or only the status is written
			rest++
			if m.Kept {
				kept++
			}
		}
	}
	add := func(k key, what group) {
		of := members[k]
		if len(of) == 0 {
			return
		}
		var names, whys []string
		said := map[string]bool{}
		for _, m := range of {
			names = append(names, m.Name)
			if k.need == attention.Sync && !said[m.Why] {
				said[m.Why] = true
				whys = append(whys, m.Why)
			}
		}
		says := fmt.Sprintf("%s %s (%s)", phrase.Count(len(of), "machine"), what.says, list(names))
		all = append(
			all,
			Finding{Note, "machines", strings.Join(append([]string{says}, phrase.Parts(list(whys))...), "; "), what.do},
		)
	}
	add(
		key{fails: true},
		group{"failed: each is replaced when its budget allows that", "to keep one for inspection: millwright preserve"},
	)
	for _, need := range []attention.Need{
		attention.Instance, attention.Name, attention.Node, attention.Recovery, attention.Sync, attention.Preserve, attention.InPlace,
		attention.Drain, attention.Deletion,
	} {
		add(key{need: need}, groups()[need])
	}
	says := "machine is as wanted: machine, node and instance stay as they are"
	says += phrase.If(kept > 0, "; %d preserved", kept)
	return append(all, calm(rest, "machines", says, strings.Replace(says, "machine is", "machines are", 1))...)
}
