package run

import (
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/decide/phrase"
)

// Attribute is a search attribute of Millwright: bootstrap registers it, and users search by it.
type Attribute struct {
	Name string
	Type string // Keyword, KeywordList, Bool or Datetime
	Help string
}

// Attributes returns every search attribute, in the order of the docs. SQL stores of Temporal hold at most ten keywords
// and three of each other type in a namespace: add new ones with care.
func Attributes() []Attribute {
	return []Attribute{
		{"MachineNamespace", "Keyword", "namespace of the object"},
		{"MachineDeployment", "Keyword", "name of the MachineDeployment that the object belongs to"},
		{"MachineSet", "Keyword", "name of the MachineSet that the object belongs to"},
		{"Machine", "Keyword", "name of the Machine"},
		{"Node", "Keyword", "name of the node"},
		{"Phase", "Keyword", "phase of the Machine"},
		{"Step", "Keyword", "step in flight"},
		{"Provider", "Keyword", "provider of the Machine's class"},
		{"BlockedBy", "KeywordList", "what the step waits for: a provider's code, a missing class, a disruption budget"},
		{"Stuck", "Bool", "nothing will move until somebody changes something, or a deadline comes"},
		{"Deadline", "Datetime", "when the step in flight is given up"},
	}
}

// Owner names the parents of an object, for its search attributes. A field is empty if there is no such parent.
type Owner struct {
	MachineDeployment string
	MachineSet        string
	Machine           string
	Provider          string
}

// StartAttributes returns the search attributes that never change in a run; the bridge sets them when it starts one.
func StartAttributes(namespace string, o Owner) temporal.SearchAttributes {
	updates := []temporal.SearchAttributeUpdate{word("MachineNamespace", namespace)}
	for _, a := range []struct{ name, value string }{
		{"MachineDeployment", o.MachineDeployment}, {"MachineSet", o.MachineSet}, {"Machine", o.Machine}, {"Provider", o.Provider},
	} {
		if a.value != "" {
			updates = append(updates, word(a.name, a.value))
		}
	}
	return temporal.NewSearchAttributes(updates...)
}

// inherited returns the search attributes that a child copies from its parent: those that name the object.
func inherited(ctx workflow.Context) temporal.SearchAttributes {
	own := workflow.GetTypedSearchAttributes(ctx)
	var updates []temporal.SearchAttributeUpdate
	for _, name := range []string{"MachineNamespace", "MachineDeployment", "MachineSet", "Machine", "Provider", "Node"} {
		if value, known := own.GetKeyword(keyword(name)); known {
			updates = append(updates, word(name, value))
		}
	}
	return temporal.NewSearchAttributes(updates...)
}

func keyword(name string) temporal.SearchAttributeKeyKeyword {
	return temporal.NewSearchAttributeKeyKeyword(name)
}

// Bounds of the values of search attributes, in bytes. Sources: the SQL stores of Temporal have 255 characters for a
// keyword, alone or in a list; its server refuses a value that has more than 2 KiB as JSON
// (frontend.searchAttributesSizeOfValueLimit), which fails the workflow task at each attempt.
const (
	longestKeyword = 255
	longestList    = 2048
)

// word sets the search attribute to the value, cut to longestKeyword.
func word(name, value string) temporal.SearchAttributeUpdate {
	return keyword(name).ValueSet(phrase.Cut(value, longestKeyword))
}

// words sets the search attribute to as many of the first values as fit into longestList, each cut to longestKeyword.
func words(name string, values []string) temporal.SearchAttributeUpdate {
	fit, size := []string{}, len("[]")
	for _, value := range values {
		value = phrase.Cut(value, longestKeyword)
		if size += inJSON(value); size > longestList {
			break
		}
		fit = append(fit, value)
	}
	return temporal.NewSearchAttributeKeyKeywordList(name).ValueSet(fit)
}

// inJSON returns how many bytes a text has at most in a list in JSON, with its quotes and its comma. Each byte that is
// not printable ASCII, or that JSON or HTML gives a meaning, counts as an escape sequence.
func inJSON(text string) int {
	size := len(`"",`)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			size += len(`\u003c`)
		} else {
			size++
		}
	}
	return size
}
