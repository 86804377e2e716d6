package run

import (
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/decide/phrase"
)

// SearchAttribute is one of Millwright's search attributes. Bootstrap registers the attribute with the Temporal server.
type SearchAttribute struct {
	Name string
	Type string // Keyword, KeywordList, Bool or Datetime
	Help string
}

// attributeOutcome is the search attribute for the outcome of a rollout.
const attributeOutcome = "Outcome"

// SearchAttributes returns every search attribute, in the order of the docs. Temporal's SQL stores support at most ten
// Keyword attributes, and three attributes of each other type, per namespace.
func SearchAttributes() []SearchAttribute {
	return []SearchAttribute{
		{"MachineNamespace", "Keyword", "namespace of the object"},
		{
			"Cluster",
			"Keyword",
			"cluster that the machines join: the name of the Cluster of Cluster API; the namespace if each namespace has its own target cluster; absent if all namespaces have one target cluster",
		},
		{"MachineDeployment", "Keyword", "name of the MachineDeployment that the object belongs to"},
		{"MachineSet", "Keyword", "name of the MachineSet that the object belongs to"},
		{"Machine", "Keyword", "name of the Machine"},
		{"Node", "Keyword", "name of the node"},
		{"Phase", "Keyword", "phase of the Machine"},
		{"Step", "Keyword", "step in flight"},
		{"Provider", "Keyword", "provider of the Machine's class"},
		{attributeOutcome, "Keyword", "how a rollout ended: Completed, RolledBack, Cancelled, Superseded, Stopped or Gone"},
		{"BlockedBy", "KeywordList", "what the step waits for: a provider's code, a missing class, a disruption budget"},
		{"Stuck", "Bool", "nothing will move until somebody changes something, or a deadline comes"},
		{"Deadline", "Datetime", "when the step in flight is given up"},
	}
}

// ParentNames names the parents of an object, for the object's search attributes. A field is empty if the parent does
// not exist.
type ParentNames struct {
	Cluster           string
	MachineDeployment string
	MachineSet        string
	Machine           string
	Provider          string
}

// StartSearchAttributes returns the search attributes that stay constant during a run. The bridge sets these attributes
// when it starts a run.
func StartSearchAttributes(namespace string, o ParentNames) temporal.SearchAttributes {
	updates := []temporal.SearchAttributeUpdate{keywordUpdate("MachineNamespace", namespace)}
	for _, a := range []struct{ name, value string }{
		{"Cluster", o.Cluster},
		{"MachineDeployment", o.MachineDeployment},
		{"MachineSet", o.MachineSet},
		{"Machine", o.Machine},
		{"Provider", o.Provider},
	} {
		if a.value != "" {
			updates = append(updates, keywordUpdate(a.name, a.value))
		}
	}
	return temporal.NewSearchAttributes(updates...)
}

// inheritedAttributes returns the search attributes that name the object. A child workflow gets a copy of these
// attributes.
func inheritedAttributes(ctx workflow.Context) temporal.SearchAttributes {
	own := workflow.GetTypedSearchAttributes(ctx)
	var updates []temporal.SearchAttributeUpdate
	for _, name := range []string{
		"MachineNamespace", "Cluster", "MachineDeployment", "MachineSet", "Machine", "Provider", "Node",
	} {
		if value, known := own.GetKeyword(keywordKey(name)); known {
			updates = append(updates, keywordUpdate(name, value))
		}
	}
	return temporal.NewSearchAttributes(updates...)
}

// SetOutcome sets the outcome of a workflow as a search attribute when the workflow ends. Histories from before version
// 1 do not have this attribute.
func SetOutcome(ctx workflow.Context, outcome string) error {
	if workflow.GetVersion(ctx, "outcome-attribute", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, keywordUpdate(attributeOutcome, outcome))
}

func keywordKey(name string) temporal.SearchAttributeKeyKeyword {
	return temporal.NewSearchAttributeKeyKeyword(name)
}

// Maximum sizes of search attribute values, in bytes. Temporal's SQL stores keep 255 characters of a keyword, alone
// or in a list. Temporal's server refuses a value of more than 2 KiB of JSON
// (frontend.searchAttributesSizeOfValueLimit), and the workflow task then fails at each attempt.
const (
	maxKeywordBytes     = 255
	maxKeywordListBytes = 2048
)

// keywordUpdate sets a Keyword search attribute to the value, cut to maxKeywordBytes bytes.
func keywordUpdate(name, value string) temporal.SearchAttributeUpdate {
	return keywordKey(name).ValueSet(phrase.TruncateText(value, maxKeywordBytes))
}

// keywordListUpdate sets a KeywordList search attribute to the values, each cut to maxKeywordBytes bytes. If the list
// would exceed maxKeywordListBytes bytes, its last values are dropped.
func keywordListUpdate(name string, values []string) temporal.SearchAttributeUpdate {
	fit, size := []string{}, len("[]")
	for _, value := range values {
		value = phrase.TruncateText(value, maxKeywordBytes)
		if size += maxJSONSize(value); size > maxKeywordListBytes {
			break
		}
		fit = append(fit, value)
	}
	return temporal.NewSearchAttributeKeyKeywordList(name).ValueSet(fit)
}

// maxJSONSize returns the maximum size of a text as an element of a JSON list, with quotes and comma. A byte counts
// as an escape sequence if it is not printable ASCII or is one of "\<>&.
func maxJSONSize(text string) int {
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
