package main

// otherObjectMeta returns the fields of ObjectMeta that controller-gen leaves out of an embedded ObjectMeta. Users'
// tools write these fields (mostly creationTimestamp: null), and Millwright ignores them. The fields need types
// nevertheless: without types, the API server would store an object whose creationTimestamp is not a time, and no typed
// client could read a list with this object.
func otherObjectMeta() schema {
	return schema{
		"generateName":               text(),
		"selfLink":                   text(),
		"uid":                        text(),
		"resourceVersion":            text(),
		"generation":                 integer(),
		"creationTimestamp":          moment(),
		"deletionTimestamp":          moment(),
		"deletionGracePeriodSeconds": integer(),
		"ownerReferences": listOf(object(schema{
			"apiVersion":         text(),
			"kind":               text(),
			"name":               text(),
			"uid":                text(),
			"controller":         boolean(),
			"blockOwnerDeletion": boolean(),
		})),
		"managedFields": listOf(object(schema{
			"manager":     text(),
			"operation":   text(),
			"apiVersion":  text(),
			"time":        moment(),
			"fieldsType":  text(),
			"fieldsV1":    object(schema{}),
			"subresource": text(),
		})),
	}
}

func text() schema    { return schema{"type": "string"} }
func boolean() schema { return schema{"type": "boolean"} }
func integer() schema { return schema{"type": "integer", "format": "int64"} }
func moment() schema  { return schema{"type": "string", "format": "date-time", "nullable": true} }

func listOf(items schema) schema { return schema{"type": "array", "items": items} }

func object(properties schema) schema {
	return schema{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties}
}
