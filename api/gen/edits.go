package main

// schemaEdit adds keywords to one schema.
type schemaEdit struct {
	path     string // names of properties, separated by dots; * stands for the items of a list, {} for the values of a map
	keywords schema
}

// schema is a part of an OpenAPI schema: keywords and their values.
type schema = map[string]any

// Bounds of maps, lists and texts. The only purpose of the bounds is that the API server can compute a finite cost of
// the CEL rules.
const (
	maxLabels               = 256    // labels of a template, or of matchLabels; a busy node has about 30 labels
	maxAnnotations          = 256    // annotations of a template
	maxLabelValueBytes      = 63     // bytes of a label's value; Kubernetes' own bound
	maxLabelKeyBytes        = 317    // bytes of a label's key: prefix 253, slash, name 63; Kubernetes' own bound
	maxAnnotationValueBytes = 262144 // bytes of an annotation's value; Kubernetes' own bound for all annotations together
	maxMatchExpressions     = 64     // matchExpressions of one selector
	maxExpressionValues     = 256    // values of one expression
	maxOperatorBytes        = 16     // bytes of an operator; the longest operator is DoesNotExist
	maxDurationBytes        = 32     // bytes of a duration; 1h30m0.000000001s has 16 bytes
	maxCapacityResources    = 256    // resources of a capacity
)

// editsByCRD returns the edits of the CRD of each plural name.
func editsByCRD() map[string][]schemaEdit {
	set := []schemaEdit{{"spec", selectorMatchesTemplateRules()}}
	set = append(set, selectorEdits("spec.selector")...)
	set = append(set, templateEdits("spec.template")...)
	drainRule := optionalSelectorEdits("spec.machines.*.selector")
	drainRule = append(drainRule, optionalSelectorEdits("spec.pods.*.selector")...)
	drainRule = append(drainRule, optionalSelectorEdits("spec.pods.*.namespaceSelector")...)
	return map[string][]schemaEdit{
		"rolloutpolicies":    rolloutPolicyEdits(),
		"machinedrainrules":  drainRule,
		"machines":           machineSpecEdits("spec"),
		"machinesets":        set,
		"machinedeployments": set,
		"machineclasses":     {{"nodeTemplate.capacity", schema{"maxProperties": maxCapacityResources}}},
	}
}

// selectorEdits bounds and checks a label selector.
func selectorEdits(path string) []schemaEdit {
	return append([]schemaEdit{{path, selectorRules()}}, selectorLimitEdits(path)...)
}

// optionalSelectorEdits bounds and checks a label selector that may be empty; an empty selector selects everything.
func optionalSelectorEdits(path string) []schemaEdit {
	return append([]schemaEdit{{path, rulesSchema(matchExpressionsRule())}}, selectorLimitEdits(path)...)
}

func selectorLimitEdits(path string) []schemaEdit {
	return []schemaEdit{
		{path + ".matchLabels", schema{"maxProperties": maxLabels}},
		{path + ".matchLabels.{}", schema{"maxLength": maxLabelValueBytes}},
		{path + ".matchExpressions", schema{"maxItems": maxMatchExpressions}},
		{path + ".matchExpressions.*.key", schema{"maxLength": maxLabelKeyBytes}},
		{path + ".matchExpressions.*.operator", schema{"maxLength": maxOperatorBytes}},
		{path + ".matchExpressions.*.values", schema{"maxItems": maxExpressionValues}},
		{path + ".matchExpressions.*.values.*", schema{"maxLength": maxLabelValueBytes}},
	}
}

// templateEdits adds bounds, types and rules to a machine template.
func templateEdits(path string) []schemaEdit {
	meta := path + ".metadata"
	edits := []schemaEdit{
		{meta, schema{"properties": omittedObjectMetaSchema()}},
		{meta + ".labels", schema{"maxProperties": maxLabels}},
		{meta + ".labels", templateLabelsRule()},
		{meta + ".labels.{}", schema{"maxLength": maxLabelValueBytes}},
		{meta + ".annotations", schema{"maxProperties": maxAnnotations}},
		{meta + ".annotations.{}", schema{"maxLength": maxAnnotationValueBytes}},
	}
	return append(edits, machineSpecEdits(path+".spec")...)
}

// machineSpecEdits adds bounds, types and rules to the spec of a machine.
func machineSpecEdits(path string) []schemaEdit {
	edits := []schemaEdit{{path + ".nodeTemplate.metadata", schema{"properties": omittedObjectMetaSchema()}}}
	for _, name := range []string{
		"drainTimeout", "healthTimeout", "creationTimeout", "inPlaceUpdateTimeout", "machinePreserveTimeout",
	} {
		edits = append(edits, durationEdits(path, name)...)
	}
	return edits
}

// rolloutPolicyEdits bounds and checks the selectors and durations of a RolloutPolicy.
func rolloutPolicyEdits() []schemaEdit {
	edits := append(optionalSelectorEdits("spec.targets.*.selector"), durationEdits("spec.steps.*", "wait")...)
	edits = append(edits, durationEdits("spec.remediation", "backoff")...)
	return append(edits, durationEdits("spec.remediation", "maxBackoff")...)
}

// durationEdits adds the bound and the rule of a duration to a field.
func durationEdits(path, name string) []schemaEdit {
	return []schemaEdit{
		{path + "." + name, schema{"maxLength": maxDurationBytes}},
		{path + "." + name, durationRule(name)},
	}
}
