package main

// edit adds keywords to one schema.
type edit struct {
	path     string // names of properties, separated by dots; * stands for the items of a list, {} for the values of a map
	keywords schema
}

// schema is a part of an OpenAPI schema: keywords and their values.
type schema = map[string]any

// Bounds of maps, lists and texts. The only purpose of the bounds is that the API server can compute a finite cost of
// the CEL rules.
const (
	maxLabels      = 256    // labels of a template, or of matchLabels; a busy node has about 30 labels
	maxAnnotations = 256    // annotations of a template
	maxLabelValue  = 63     // bytes of a label's value; Kubernetes' own bound
	maxLabelKey    = 317    // bytes of a label's key: prefix 253, slash, name 63; Kubernetes' own bound
	maxAnnotation  = 262144 // bytes of an annotation's value; Kubernetes' own bound for all annotations together
	maxExpressions = 64     // matchExpressions of one selector
	maxValues      = 256    // values of one expression
	maxOperator    = 16     // bytes of an operator; the longest operator is DoesNotExist
	maxDuration    = 32     // bytes of a duration; 1h30m0.000000001s has 16 bytes
	maxResources   = 256    // resources of a capacity
)

// edits returns the edits of the CRD of each plural name.
func edits() map[string][]edit {
	set := []edit{{"spec", selectorMatchesTemplateRules()}}
	set = append(set, selector("spec.selector")...)
	set = append(set, template("spec.template")...)
	drainRule := anySelector("spec.machines.*.selector")
	drainRule = append(drainRule, anySelector("spec.pods.*.selector")...)
	drainRule = append(drainRule, anySelector("spec.pods.*.namespaceSelector")...)
	return map[string][]edit{
		"rolloutpolicies":    rolloutPolicy(),
		"machinedrainrules":  drainRule,
		"machines":           machineSpec("spec"),
		"machinesets":        set,
		"machinedeployments": set,
		"machineclasses":     {{"nodeTemplate.capacity", schema{"maxProperties": maxResources}}},
	}
}

// selector bounds and checks a label selector.
func selector(path string) []edit {
	return append([]edit{{path, selectorRules()}}, selectorBounds(path)...)
}

// anySelector bounds and checks a label selector that may be empty; an empty selector selects everything.
func anySelector(path string) []edit {
	return append([]edit{{path, rules(expressionRule())}}, selectorBounds(path)...)
}

func selectorBounds(path string) []edit {
	return []edit{
		{path + ".matchLabels", schema{"maxProperties": maxLabels}},
		{path + ".matchLabels.{}", schema{"maxLength": maxLabelValue}},
		{path + ".matchExpressions", schema{"maxItems": maxExpressions}},
		{path + ".matchExpressions.*.key", schema{"maxLength": maxLabelKey}},
		{path + ".matchExpressions.*.operator", schema{"maxLength": maxOperator}},
		{path + ".matchExpressions.*.values", schema{"maxItems": maxValues}},
		{path + ".matchExpressions.*.values.*", schema{"maxLength": maxLabelValue}},
	}
}

// template adds bounds, types and rules to a machine template.
func template(path string) []edit {
	meta := path + ".metadata"
	edits := []edit{
		{meta, schema{"properties": otherObjectMeta()}},
		{meta + ".labels", schema{"maxProperties": maxLabels}},
		{meta + ".labels", templateLabelsRule()},
		{meta + ".labels.{}", schema{"maxLength": maxLabelValue}},
		{meta + ".annotations", schema{"maxProperties": maxAnnotations}},
		{meta + ".annotations.{}", schema{"maxLength": maxAnnotation}},
	}
	return append(edits, machineSpec(path+".spec")...)
}

// machineSpec adds bounds, types and rules to the spec of a machine.
func machineSpec(path string) []edit {
	edits := []edit{{path + ".nodeTemplate.metadata", schema{"properties": otherObjectMeta()}}}
	for _, name := range []string{
		"drainTimeout", "healthTimeout", "creationTimeout", "inPlaceUpdateTimeout", "machinePreserveTimeout",
	} {
		edits = append(edits, duration(path, name)...)
	}
	return edits
}

// rolloutPolicy bounds and checks the selectors and durations of a RolloutPolicy.
func rolloutPolicy() []edit {
	edits := append(anySelector("spec.targets.*.selector"), duration("spec.steps.*", "wait")...)
	edits = append(edits, duration("spec.remediation", "backoff")...)
	return append(edits, duration("spec.remediation", "maxBackoff")...)
}

// duration adds the bound and the rule of a duration to a field.
func duration(path, name string) []edit {
	return []edit{{path + "." + name, schema{"maxLength": maxDuration}}, {path + "." + name, durationRule(name)}}
}
