package main

import "fmt"

// This file has the CEL rules that are too long for a marker, or that two kinds share. A rule is made from the
// condition that makes an item invalid; the message uses the same condition to find the invalid item. A message names
// the field, its value, and the allowed values. A message names only the first invalid item of a list, because the API
// server cannot estimate the cost of joining several items.

// rulesKeyword is the keyword for the rules of a schema.
const rulesKeyword = "x-kubernetes-validations"

// rulesSchema returns a schema that has only these rules.
func rulesSchema(list ...schema) schema {
	items := make([]any, 0, len(list))
	for _, r := range list {
		items = append(items, r)
	}
	return schema{rulesKeyword: items}
}

// durationRule accepts the texts that time.ParseDuration accepts, except negative durations. The rule limits the digits
// of each unit and accepts hours only once. A text that the rule accepts, of at most maxDurationBytes characters, is
// less than 2562047h, the maximum of an int64 of nanoseconds. If the API server stored a longer duration, no typed
// client could read the object.
func durationRule(field string) schema {
	number := func(digits int) string { return fmt.Sprintf(`([0-9]{1,%d}([.][0-9]*)?|[.][0-9]+)`, digits) }
	component := "(" + number(6) + "h|" + number(7) + "m|" + number(9) + "s|" +
		number(12) + "ms|" + number(15) + "[uµμ]s|" + number(18) + "ns)"
	return rulesSchema(schema{
		"rule": "self.matches('^[+]?(0|" + component + "+)$') && !self.matches('h.*h')",
		"messageExpression": `'` + field + ` is "' + self + '"; ` +
			`allowed is a Go duration from 0 to 999999h, such as 90s, 20m or 1h30m'`,
	})
}

// templateLabelsRule refuses invalid labels in a template, because the API server would refuse every machine with such
// labels.
func templateLabelsRule() schema {
	const wrong = `(format.qualifiedName().validate(k).hasValue() || format.labelValue().validate(self[k]).hasValue())`
	return rulesSchema(schema{
		"rule": `self.all(k, !` + wrong + `)`,
		"messageExpression": `'labels has "' + self.map(k, ` + wrong + `, k + '=' + self[k])[0] + '", which no machine can carry; ` +
			`allowed are keys like team or example.com/team and values of up to 63 letters, digits, "-", "_" and ".", ` +
			`with a letter or digit at both ends'`,
	})
}

// matchExpressionFormat formats one entry of matchExpressions.
const matchExpressionFormat = `'"' + e.key + ' ' + e.operator + (has(e.values) ? ' (' + e.values.join(', ') + ')' : '') + '"'`

// selectorRules refuse a selector that selects everything, and a selector that Kubernetes cannot read.
func selectorRules() schema {
	return rulesSchema(
		schema{
			"rule": `(has(self.matchLabels) && size(self.matchLabels) > 0) || ` +
				`(has(self.matchExpressions) && size(self.matchExpressions) > 0)`,
			"message": `selector is empty, which would select every machine of the namespace; ` +
				`it must have at least one entry in matchLabels or matchExpressions`,
		},
		matchExpressionsRule(),
	)
}

// matchExpressionsRule is a rule for any selector: its expressions must be valid.
func matchExpressionsRule() schema {
	const wrong = `!(e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : ` +
		`e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))`
	return schema{
		"rule":      `!has(self.matchExpressions) || !self.matchExpressions.exists(e, ` + wrong + `)`,
		"fieldPath": `.matchExpressions`,
		"messageExpression": `'matchExpressions has ' + self.matchExpressions.map(e, ` + wrong + `, ` + matchExpressionFormat + `)[0] + ` +
			`'; allowed are In and NotIn with values, Exists and DoesNotExist without'`,
	}
}

// selectorMatchesTemplateRules require that the selector of a spec matches its template. If selector and template did
// not match, a set would not find its own machines, and would create new machines without end.
func selectorMatchesTemplateRules() schema {
	const (
		labels    = `self.template.metadata.labels`
		hasLabels = `has(self.template.metadata) && has(` + labels + `)`

		lacksLabel = `!(` + hasLabels + ` && k in ` + labels + ` && ` + labels + `[k] == self.selector.matchLabels[k])`

		hasKey = `(` + hasLabels + ` && e.key in ` + labels + `)`
		isIn   = `(` + hasKey + ` && has(e.values) && ` + labels + `[e.key] in e.values)`
		// selectorRules reports an operator that does not exist or lacks its values.
		unmet = `(e.operator == 'In' ? has(e.values) && !` + isIn + ` : e.operator == 'NotIn' ? ` + isIn +
			` : e.operator == 'Exists' ? !` + hasKey + ` : e.operator == 'DoesNotExist' && ` + hasKey + `)`
	)
	return rulesSchema(
		schema{
			"rule":      `!has(self.selector.matchLabels) || !self.selector.matchLabels.exists(k, ` + lacksLabel + `)`,
			"fieldPath": `.template.metadata.labels`,
			"messageExpression": `'selector.matchLabels asks for "' + ` +
				`self.selector.matchLabels.map(k, ` + lacksLabel + `, k + '=' + self.selector.matchLabels[k])[0] + ` +
				`'", which template.metadata.labels lacks; the template must carry every label of the selector'`,
		},
		schema{
			"rule":      `!has(self.selector.matchExpressions) || !self.selector.matchExpressions.exists(e, ` + unmet + `)`,
			"fieldPath": `.template.metadata.labels`,
			"messageExpression": `'selector.matchExpressions asks for ' + ` +
				`self.selector.matchExpressions.map(e, ` + unmet + `, ` + matchExpressionFormat + `)[0] + ` +
				`', which template.metadata.labels does not meet; the template must meet every expression of the selector'`,
		},
	)
}
