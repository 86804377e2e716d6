package main

import "encoding/json"

// The part of the virtual cloud's API that this driver uses. Package provider/virtual documents the whole API.
const (
	path      = "/v1/instances"
	csiDriver = "csi.virtual.millwright" // name of the CSI driver of the cloud's volumes
)

// creation is the body of a request to create an instance. Without a client token each accepted request makes another
// instance.
type creation struct {
	Name     string          `json:"name"`
	Tags     tags            `json:"tags"`
	Spec     json.RawMessage `json:"spec"`
	UserData []byte          `json:"userData,omitempty"`
}

type tags struct {
	Cluster string `json:"cluster"`
	Class   string `json:"class"` // namespace/name
	Machine string `json:"machine"`
}

type instance struct {
	ID         string `json:"id"`
	ProviderID string `json:"providerID"`
	Tags       tags   `json:"tags"`
	State      string `json:"state"`
}

// page is an answer to a list.
type page struct {
	Items []instance `json:"items"`
	Next  string     `json:"next"` // names the next page; empty on the last one
}

type refusal struct {
	Code    string `json:"code"` // name of one of MCM's codes
	Message string `json:"message"`
}
