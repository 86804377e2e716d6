// Package ownership decides who owns a node, and who owns an instance. Only this package compares provider IDs.
// docs/ownership.md has the table of all situations; the tests check the same table.
//
// Three ties connect a node or an instance to a Machine. The first tie is the provider ID, if it is the same on the
// Machine and on the node. The second tie is the UID of the Machine, as a tag of the instance or as Millwright's
// mark on the node. The third tie is the name that the provider returned for the node of the Machine's instance.
// Names and labels that anybody may write are not ties.
package ownership

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"millwright/decide/phrase"
)

// OwnerKind is who owns a node or an instance, as seen from one Machine.
type OwnerKind string

// The possible owners in an answer. Only Ours permits the caller to write to, drain, delete or adopt the object.
// InDoubt stops the step until a person decides; the caller must not treat the step as done.
const (
	OwnerSelf    OwnerKind = "Ours"
	OwnerOther   OwnerKind = "Another's"
	OwnerNone    OwnerKind = "Nobody's" // owned by no known Machine
	OwnerInDoubt OwnerKind = "InDoubt"
)

// OwnerAnswer is the answer about one node or instance. The zero OwnerAnswer means that the owner was not determined.
type OwnerAnswer struct {
	Whose OwnerKind `json:",omitempty"`
	// reason for the answer, in one sentence; if Whose is InDoubt, the sentence also says what a person can do
	Why string `json:",omitempty"`
	// Ask means that the provider can resolve the doubt, because it knows the name of the instance's node.
	Ask bool `json:",omitempty"`
}

// HasOwnerKind reports whether the owner is w.
func (a OwnerAnswer) HasOwnerKind(w OwnerKind) bool { return a.Whose == w }

// Machine holds the facts that an existing Machine states about its instance and node.
type Machine struct {
	Namespace, Name, UID string
	ProviderID           string // spec.providerID of the Machine
	Told                 string // status.nodeName: name of the Machine's node, as the provider returned it
	InstanceGone         bool   // the provider reported that the instance is gone, so that the Machine claims nothing
}

func (m Machine) String() string { return fmt.Sprintf("Machine %s/%s", m.Namespace, m.Name) }

// Node is a node whose owner is requested.
type Node struct {
	Name              string
	ProviderID        string // spec.providerID; empty: not known yet, or not set by the cloud
	MarkerUID         string // UID of the Machine that marked the node as its own; empty: no mark
	DuplicateNodeName string // name of another node with the same provider ID; empty: no such node
}

// Instance is an instance whose owner is requested.
type Instance struct {
	ProviderID  string
	MachineUID  string // tag: UID of the Machine for which the instance was created; empty: no such tag
	MachineName string // tag: name of the Machine for which the instance was created; empty: no such tag
}

// IsSameInstance reports whether two provider IDs name the same instance: the IDs are equal, or they have the same
// cloud and the same last part. The middle parts differ between MCM's drivers and cloud controller managers:
// aws:///REGION/i-1 on a Machine is aws:///ZONE/i-1 on its Node. An empty ID names no instance.
func IsSameInstance(a, b string) bool { return a != "" && ProviderIDKey(a) == ProviderIDKey(b) }

// ProviderIDKey returns the same text for two provider IDs if and only if they name the same instance; empty for an
// empty ID.
func ProviderIDKey(providerID string) string {
	cloud, rest, is := strings.Cut(providerID, "://")
	if !is || rest == "" || strings.HasSuffix(rest, "/") {
		return providerID
	}
	return cloud + "://" + path.Base(rest)
}

// otherMachineList holds all Machines except the Machine for which the owner is requested.
type otherMachineList []Machine

func (all otherMachineList) findMachine(matches func(Machine) bool) (Machine, bool) {
	if i := slices.IndexFunc(all, matches); i >= 0 {
		return all[i], true
	}
	return Machine{}, false
}

// otherMachines returns all Machines except me.
func otherMachines(all []Machine, me Machine) otherMachineList {
	return slices.DeleteFunc(slices.Clone(all), func(m Machine) bool { return m.UID == me.UID })
}

func (all otherMachineList) findByProviderID(providerID string) (Machine, bool) {
	return all.findMachine(func(m Machine) bool { return !m.InstanceGone && IsSameInstance(m.ProviderID, providerID) })
}

func (all otherMachineList) findByUID(uid string) (Machine, bool) {
	return all.findMachine(func(m Machine) bool { return uid != "" && m.UID == uid })
}

// OwnerOfNode returns who owns a node, as seen from a Machine that names the node or has its provider ID. The list
// others contains at least the Machines of all namespaces that have the node's provider ID, have the node's name as
// status.nodeName, or marked the node. others may contain me and further Machines.
func OwnerOfNode(n Node, me Machine, others []Machine) OwnerAnswer {
	all := otherMachines(others, me)
	switch {
	case me.ProviderID == "":
		return answerForMachineWithoutInstance(n, me, all)
	case n.ProviderID == "":
		return answerForNodeWithoutID(n, me, all)
	case !IsSameInstance(n.ProviderID, me.ProviderID):
		return answerForOtherInstance(n, me, all)
	}
	what := fmt.Sprintf("node %s is of instance %s", n.Name, n.ProviderID)
	marked, isMarked := all.findByUID(n.MarkerUID)
	rival, hasRival := all.findByProviderID(n.ProviderID)
	switch {
	case n.DuplicateNodeName != "":
		return inDoubtAnswer(
			"nodes %s and %s both have the provider ID %s: delete the Node that is not in use, or request skip",
			n.Name,
			n.DuplicateNodeName,
			n.ProviderID,
		)
	case n.MarkerUID == me.UID:
		return selfOwnerAnswer("%s, and has the mark of this Machine", what)
	case isMarked && IsSameInstance(marked.ProviderID, n.ProviderID):
		return otherOwnerAnswer("%s, which %s names, too, and has the mark of that Machine", what, marked)
	case isMarked:
		return inDoubtAnswer("%s, as this Machine says, and has the mark of %s, which names %s: "+
			"correct spec.providerID of one of them", what, marked, cmp.Or(marked.ProviderID, "no instance"))
	case hasRival:
		return inDoubtAnswer("%s, which this Machine names and %s, too, and has no mark of either: "+
			"clear spec.providerID of the copy", what, rival)
	default:
		return selfOwnerAnswer("%s, which no other Machine names", what)
	}
}

// answerForMachineWithoutInstance is OwnerOfNode for a Machine without a provider ID.
func answerForMachineWithoutInstance(n Node, me Machine, all otherMachineList) OwnerAnswer {
	rival, has := all.findByProviderID(n.ProviderID)
	if !has {
		rival, has = all.findByUID(n.MarkerUID)
	}
	switch {
	case n.MarkerUID == me.UID && has:
		return inDoubtAnswer(
			"node %s has the mark of this Machine, which names no instance, and is of instance %s, which %s names: "+
				"restore spec.providerID",
			n.Name,
			n.ProviderID,
			rival,
		)
	case n.MarkerUID == me.UID:
		return selfOwnerAnswer("node %s has the mark of this Machine", n.Name)
	case has:
		return otherOwnerAnswer("node %s is of %s", n.Name, rival)
	default:
		return noOwnerAnswer("this Machine names no instance, and a name alone makes node %s nobody's", n.Name)
	}
}

// answerForNodeWithoutID is OwnerOfNode for a node without a provider ID, and a Machine with a provider ID.
func answerForNodeWithoutID(n Node, me Machine, all otherMachineList) OwnerAnswer {
	what := fmt.Sprintf("node %s has no provider ID", n.Name)
	marked, isMarked := all.findByUID(n.MarkerUID)
	told, isTold := all.findMachine(func(m Machine) bool { return !m.InstanceGone && m.Told == n.Name })
	switch {
	case n.MarkerUID == me.UID:
		return selfOwnerAnswer("%s, and has the mark of this Machine", what)
	case isMarked && !marked.InstanceGone:
		return otherOwnerAnswer("%s, and has the mark of %s", what, marked)
	case isTold && me.Told == n.Name:
		return inDoubtAnswer(
			"%s, and its name was told for the instances of this Machine and of %s: set spec.providerID of the Node",
			what,
			told,
		)
	case isTold:
		return otherOwnerAnswer("%s, and its name was told for the instance of %s", what, told)
	case me.Told == n.Name:
		return selfOwnerAnswer("%s, and the provider told its name for the instance of this Machine", what)
	default:
		a := inDoubtAnswer(
			"%s, and only a label says that it is of this Machine: set spec.providerID of the Node, or request skip",
			what,
		)
		a.Ask = true
		return a
	}
}

// answerForOtherInstance is OwnerOfNode for a node whose provider ID names another instance than the Machine's provider
// ID.
func answerForOtherInstance(n Node, me Machine, all otherMachineList) OwnerAnswer {
	what := fmt.Sprintf("node %s is of instance %s, and not of %s", n.Name, n.ProviderID, me.ProviderID)
	rival, has := all.findByProviderID(n.ProviderID)
	switch {
	case n.MarkerUID == me.UID:
		return inDoubtAnswer("%s, but has the mark of this Machine: correct spec.providerID", what)
	case has:
		return otherOwnerAnswer("%s: it is the node of %s", what, rival)
	default:
		return noOwnerAnswer("%s", what)
	}
}

// OwnerOfInstance returns who owns an instance, as seen from a Machine. The Machine names the instance, or the instance
// has the Machine's UID or name as a tag. others contains at least the Machines that name the instance's provider ID,
// and the Machine whose UID is the instance's tag.
func OwnerOfInstance(i Instance, me Machine, others []Machine) OwnerAnswer {
	all := otherMachines(others, me)
	what := "instance " + i.ProviderID
	named := IsSameInstance(i.ProviderID, me.ProviderID)
	maker, isMade := all.findByUID(i.MachineUID)
	rival, hasRival := all.findByProviderID(i.ProviderID)
	byName := i.MachineUID == "" && me.ProviderID == "" && i.MachineName != "" && i.MachineName == me.Name
	switch {
	case i.MachineUID != "" && i.MachineUID == me.UID:
		return selfOwnerAnswer("%s has the UID of this Machine", what)
	case isMade:
		return otherOwnerAnswer("%s has the UID of %s", what, maker)
	case hasRival && (named || byName):
		return inDoubtAnswer("%s has %s, and %s names it, too: clear spec.providerID of the copy",
			what, cmp.Or(phrase.TextIf(i.MachineUID != "", "the UID of a Machine that does not exist"), "no UID"), rival)
	case hasRival:
		return otherOwnerAnswer("%s names %s", rival, what)
	case named && i.MachineUID != "":
		return selfOwnerAnswer("this Machine names %s, whose own Machine does not exist any more", what)
	case named:
		return selfOwnerAnswer("this Machine names %s, and no other does", what)
	case byName:
		return selfOwnerAnswer("%s has the name of this Machine and no UID, and no Machine names it", what)
	default:
		return noOwnerAnswer("%s has neither the UID nor the name of this Machine", what)
	}
}

func selfOwnerAnswer(format string, args ...any) OwnerAnswer {
	return newAnswer(OwnerSelf, format, args)
}

func otherOwnerAnswer(format string, args ...any) OwnerAnswer {
	return newAnswer(OwnerOther, format, args)
}

func noOwnerAnswer(format string, args ...any) OwnerAnswer { return newAnswer(OwnerNone, format, args) }

func inDoubtAnswer(format string, args ...any) OwnerAnswer {
	return newAnswer(OwnerInDoubt, format, args)
}

func newAnswer(w OwnerKind, format string, args []any) OwnerAnswer {
	return OwnerAnswer{Whose: w, Why: phrase.TruncateMessage(fmt.Sprintf(format, args...))} // a provider ID may be long
}
