package component

import (
	"slices"
	"time"
)

// Plan is the input of the supervisor.
type Plan struct {
	Dir        string              `json:"dir"`
	Repo       string              `json:"repo"`
	Components []string            `json:"components"`
	Ports      map[string]int      `json:"ports"`
	Binaries   map[string]string   `json:"binaries"`          // path of the binary, by name of the component
	Kubectl    string              `json:"kubectl,omitempty"` // the multi-call binary, if there is an API server
	Env        map[string][]string `json:"env,omitempty"`
	Args       map[string][]string `json:"args,omitempty"`
	Quiet      bool                `json:"quiet,omitempty"`
	NodeLease  time.Duration       `json:"nodeLease,omitempty"` // duration of a virtual node's lease; zero: Quiet decides
	Timeout    time.Duration       `json:"timeout"`
	// TemporalTLS makes Temporal's frontend require certificates of its clients.
	TemporalTLS bool `json:"temporalTLS,omitempty"`
	// Extras are the components that are not in the table. The chosen ones are also in Components.
	Extras []Extra `json:"extras,omitempty"`
	// Manifests are folders with objects that bootstrap applies besides the product's objects.
	Manifests []string `json:"manifests,omitempty"`
	// ClusterAPI is the folder of build.ClusterAPIPrograms; empty: the stack has no Cluster API.
	ClusterAPI string `json:"clusterAPI,omitempty"`
}

// extraNamed returns the Extra with the name; false if there is none.
func (p Plan) extraNamed(name string) (Extra, bool) {
	i := slices.IndexFunc(p.Extras, func(e Extra) bool { return e.Name == name })
	if i < 0 {
		return Extra{}, false
	}
	return p.Extras[i], true
}

// Layout returns the folder of the stack.
func (p Plan) Layout() Layout { return Layout(p.Dir) }
