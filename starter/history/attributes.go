package history

import (
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// attributes are the search attributes of a run. Search attributes are never encrypted.
type attributes map[string]*commonpb.Payload

// keyword returns the value of a Keyword attribute; empty if the run has no such attribute.
func (a attributes) keyword(name string) (value string) {
	a.decode(name, &value)
	return value
}

// keywords returns the values of a KeywordList attribute; nil if the run has no such attribute.
func (a attributes) keywords(name string) (values []string) {
	a.decode(name, &values)
	return values
}

// decode decodes an attribute. If the value has another form, into stays as it is.
func (a attributes) decode(name string, into any) {
	if payload := a[name]; payload != nil {
		_ = converter.GetDefaultDataConverter().FromPayload(payload, into)
	}
}
