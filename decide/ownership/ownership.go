// Package ownership decides whose a node is, and whose an instance is. It is the only place where provider IDs are
// compared. docs/ownership.md has the table of all situations, which is also the table of the test.
//
// Three things can tie a node or an instance to a Machine, in this order: the provider ID that the Machine and the node
// have in common; the UID of the Machine, which is a tag of the instance and a mark of ours on the node; the name that
// the provider told for the node of the Machine's instance. A name or a label that anybody may write is no tie.
package ownership

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"millwright/decide/phrase"
)

// Whose says to whom a node or an instance belongs, as seen from one Machine.
type Whose string

// The answers. Only Ours permits to write, drain, delete or adopt. InDoubt stops the step until a person decides; it
// never means that there is nothing to do.
const (
	Ours     Whose = "Ours"
	Anothers Whose = "Another's"
	Nobodys  Whose = "Nobody's" // of no Machine that is known here
	InDoubt  Whose = "InDoubt"
)

// Answer is the answer about one node or instance. The zero Answer means that nothing was asked.
type Answer struct {
	Whose Whose  `json:",omitempty"`
	Why   string `json:",omitempty"` // the sentence; with InDoubt, it says what a person can do
	// Ask: the provider can settle the doubt, by the name of the instance's node.
	Ask bool `json:",omitempty"`
}

// Is reports whether the answer is this one.
func (a Answer) Is(w Whose) bool { return a.Whose == w }

// Machine is what a Machine that exists says of its instance and node.
type Machine struct {
	Namespace, Name, UID string
	ProviderID           string // spec.providerID
	Told                 string // name of its node, as the provider told it: status.nodeName
	InstanceGone         bool   // the provider has said that the instance is gone: the Machine claims nothing
}

func (m Machine) String() string { return fmt.Sprintf("Machine %s/%s", m.Namespace, m.Name) }

// Node is a node whose owner is wanted.
type Node struct {
	Name       string
	ProviderID string // spec.providerID; empty: it is not known yet, or the cloud gives none
	Mark       string // UID of the Machine that marked the node as its own; empty: none did
	Twin       string // name of another node with the same provider ID; empty: there is none
}

// Instance is an instance whose owner is wanted.
type Instance struct {
	ProviderID string
	UID        string // of the Machine for which it was made, from its tag; empty: it has no such tag
	Machine    string // name of that Machine, from its tag; empty: it has no such tag
}

// SameInstance reports whether two provider IDs name the same instance: they are equal, or of the same cloud with the
// same last part. MCM's drivers and cloud controller managers write other parts before it: aws:///REGION/i-1 on a
// Machine is aws:///ZONE/i-1 on its Node. An empty ID names none.
func SameInstance(a, b string) bool { return a != "" && Key(a) == Key(b) }

// Key returns the same text for two provider IDs exactly if they name the same instance; empty for an empty ID.
func Key(providerID string) string {
	cloud, rest, is := strings.Cut(providerID, "://")
	if !is || rest == "" || strings.HasSuffix(rest, "/") {
		return providerID
	}
	return cloud + "://" + path.Base(rest)
}

// rivals are all Machines except the one that asks.
type rivals []Machine

func (all rivals) with(matches func(Machine) bool) (Machine, bool) {
	if i := slices.IndexFunc(all, matches); i >= 0 {
		return all[i], true
	}
	return Machine{}, false
}

// without returns all Machines except me.
func without(all []Machine, me Machine) rivals {
	return slices.DeleteFunc(slices.Clone(all), func(m Machine) bool { return m.UID == me.UID })
}

func (all rivals) naming(providerID string) (Machine, bool) {
	return all.with(func(m Machine) bool { return !m.InstanceGone && SameInstance(m.ProviderID, providerID) })
}

func (all rivals) withUID(uid string) (Machine, bool) {
	return all.with(func(m Machine) bool { return uid != "" && m.UID == uid })
}

// OfNode says whose a node is, as seen from a Machine that names it or has its provider ID. Others are Machines of all
// namespaces, at least those that name the node's provider ID, those to which the provider told the node's name, and
// the one that marked the node; the Machine itself and further ones do no harm.
func OfNode(n Node, me Machine, others []Machine) Answer {
	all := without(others, me)
	switch {
	case me.ProviderID == "":
		return ofNodeWithoutInstance(n, me, all)
	case n.ProviderID == "":
		return ofNodeWithoutID(n, me, all)
	case !SameInstance(n.ProviderID, me.ProviderID):
		return ofOtherInstance(n, me, all)
	}
	what := fmt.Sprintf("node %s is of instance %s", n.Name, n.ProviderID)
	marked, isMarked := all.withUID(n.Mark)
	rival, hasRival := all.naming(n.ProviderID)
	switch {
	case n.Twin != "":
		return doubt("nodes %s and %s both have the provider ID %s: delete the Node that is not in use, or request skip",
			n.Name, n.Twin, n.ProviderID)
	case n.Mark == me.UID:
		return ours("%s, and has the mark of this Machine", what)
	case isMarked && SameInstance(marked.ProviderID, n.ProviderID):
		return anothers("%s, which %s names, too, and has the mark of that Machine", what, marked)
	case isMarked:
		return doubt("%s, as this Machine says, and has the mark of %s, which names %s: "+
			"correct spec.providerID of one of them", what, marked, cmp.Or(marked.ProviderID, "no instance"))
	case hasRival:
		return doubt("%s, which this Machine names and %s, too, and has no mark of either: "+
			"clear spec.providerID of the copy", what, rival)
	default:
		return ours("%s, which no other Machine names", what)
	}
}

// ofNodeWithoutInstance is OfNode for a Machine that names no instance.
func ofNodeWithoutInstance(n Node, me Machine, all rivals) Answer {
	rival, has := all.naming(n.ProviderID)
	if !has {
		rival, has = all.withUID(n.Mark)
	}
	switch {
	case n.Mark == me.UID && has:
		return doubt("node %s has the mark of this Machine, which names no instance, and is of instance %s, which %s names: "+
			"restore spec.providerID", n.Name, n.ProviderID, rival)
	case n.Mark == me.UID:
		return ours("node %s has the mark of this Machine", n.Name)
	case has:
		return anothers("node %s is of %s", n.Name, rival)
	default:
		return nobodys("this Machine names no instance, and a name alone makes node %s nobody's", n.Name)
	}
}

// ofNodeWithoutID is OfNode for a node that has no provider ID, and a Machine that names an instance.
func ofNodeWithoutID(n Node, me Machine, all rivals) Answer {
	what := fmt.Sprintf("node %s has no provider ID", n.Name)
	marked, isMarked := all.withUID(n.Mark)
	told, isTold := all.with(func(m Machine) bool { return !m.InstanceGone && m.Told == n.Name })
	switch {
	case n.Mark == me.UID:
		return ours("%s, and has the mark of this Machine", what)
	case isMarked && !marked.InstanceGone:
		return anothers("%s, and has the mark of %s", what, marked)
	case isTold && me.Told == n.Name:
		return doubt("%s, and its name was told for the instances of this Machine and of %s: set spec.providerID of the Node",
			what, told)
	case isTold:
		return anothers("%s, and its name was told for the instance of %s", what, told)
	case me.Told == n.Name:
		return ours("%s, and the provider told its name for the instance of this Machine", what)
	default:
		a := doubt(
			"%s, and only a label says that it is of this Machine: set spec.providerID of the Node, or request skip",
			what,
		)
		a.Ask = true
		return a
	}
}

// ofOtherInstance is OfNode for a node that has the provider ID of another instance than the Machine's.
func ofOtherInstance(n Node, me Machine, all rivals) Answer {
	what := fmt.Sprintf("node %s is of instance %s, and not of %s", n.Name, n.ProviderID, me.ProviderID)
	rival, has := all.naming(n.ProviderID)
	switch {
	case n.Mark == me.UID:
		return doubt("%s, but has the mark of this Machine: correct spec.providerID", what)
	case has:
		return anothers("%s: it is the node of %s", what, rival)
	default:
		return nobodys("%s", what)
	}
}

// OfInstance says whose an instance is, as seen from a Machine that names it, or whose UID or name it has as a tag.
// Others are all Machines of the control cluster, or at least those that name the instance's provider ID and the one
// with the UID of its tag.
func OfInstance(i Instance, me Machine, others []Machine) Answer {
	all := without(others, me)
	what := "instance " + i.ProviderID
	named := SameInstance(i.ProviderID, me.ProviderID)
	maker, isMade := all.withUID(i.UID)
	rival, hasRival := all.naming(i.ProviderID)
	byName := i.UID == "" && me.ProviderID == "" && i.Machine != "" && i.Machine == me.Name
	switch {
	case i.UID != "" && i.UID == me.UID:
		return ours("%s has the UID of this Machine", what)
	case isMade:
		return anothers("%s has the UID of %s", what, maker)
	case hasRival && (named || byName):
		return doubt("%s has %s, and %s names it, too: clear spec.providerID of the copy",
			what, cmp.Or(phrase.If(i.UID != "", "the UID of a Machine that does not exist"), "no UID"), rival)
	case hasRival:
		return anothers("%s names %s", rival, what)
	case named && i.UID != "":
		return ours("this Machine names %s, whose own Machine does not exist any more", what)
	case named:
		return ours("this Machine names %s, and no other does", what)
	case byName:
		return ours("%s has the name of this Machine and no UID, and no Machine names it", what)
	default:
		return nobodys("%s has neither the UID nor the name of this Machine", what)
	}
}

func ours(format string, args ...any) Answer { return answer(Ours, format, args) }

func anothers(format string, args ...any) Answer { return answer(Anothers, format, args) }

func nobodys(format string, args ...any) Answer { return answer(Nobodys, format, args) }

func doubt(format string, args ...any) Answer { return answer(InDoubt, format, args) }

func answer(w Whose, format string, args []any) Answer {
	return Answer{Whose: w, Why: fmt.Sprintf(format, args...)}
}
