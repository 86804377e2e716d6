package main

// omittedObjectMetaSchema returns the fields of ObjectMeta that controller-gen leaves out of an embedded ObjectMeta.
// Users' tools write these fields (mostly creationTimestamp: null), and Millwright ignores them. The ignored fields
// need types as well. Without types, the API server would store an object whose creationTimestamp is not a time, and no
// typed client could read a list with this object.
func omittedObjectMetaSchema() schema {
	return schema{
		"generateName":               textSchema(),
		"selfLink":                   textSchema(),
		"uid":                        textSchema(),
		"resourceVersion":            textSchema(),
		"generation":                 integerSchema(),
		"creationTimestamp":          timeSchema(),
		"deletionTimestamp":          timeSchema(),
		"deletionGracePeriodSeconds": integerSchema(),
		"ownerReferences": listSchema(objectSchema(schema{
			"apiVersion":         textSchema(),
			"kind":               textSchema(),
			"name":               textSchema(),
			"uid":                textSchema(),
			"controller":         booleanSchema(),
			"blockOwnerDeletion": booleanSchema(),
		})),
		"managedFields": listSchema(objectSchema(schema{
			"manager":     textSchema(),
			"operation":   textSchema(),
			"apiVersion":  textSchema(),
			"time":        timeSchema(),
			"fieldsType":  textSchema(),
			"fieldsV1":    objectSchema(schema{}),
			"subresource": textSchema(),
		})),
	}
}

func textSchema() schema    { return schema{"type": "string"} }
func booleanSchema() schema { return schema{"type": "boolean"} }
func integerSchema() schema { return schema{"type": "integer", "format": "int64"} }
func timeSchema() schema    { return schema{"type": "string", "format": "date-time", "nullable": true} }

func listSchema(items schema) schema { return schema{"type": "array", "items": items} }

func objectSchema(properties schema) schema {
	return schema{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties}
}
