package component

import "time"

// Plan is the input of the supervisor.
type Plan struct {
	Dir        string              `json:"dir"`
	Repo       string              `json:"repo"`
	Components []string            `json:"components"`
	Ports      map[string]int      `json:"ports"`
	Binaries   map[string]string   `json:"binaries"`          // path by component
	Kubectl    string              `json:"kubectl,omitempty"` // the multi-call binary, if there is an API server
	Env        map[string][]string `json:"env,omitempty"`
	Args       map[string][]string `json:"args,omitempty"`
	Quiet      bool                `json:"quiet,omitempty"`
	NodeLease  time.Duration       `json:"nodeLease,omitempty"` // of virtual nodes; zero: as Quiet says
	Timeout    time.Duration       `json:"timeout"`
	// TemporalTLS makes Temporal's frontend demand certificates.
	TemporalTLS bool    `json:"temporalTLS,omitempty"`
	Network     Network `json:"network,omitzero"` // of real machines, if there are some
	// ClusterAPI is the folder of Cluster API's programs and manifests, if there are some: build.ClusterAPIPrograms.
	ClusterAPI string `json:"clusterAPI,omitempty"`
}

// Layout returns the folder of the stack.
func (p Plan) Layout() Layout { return Layout(p.Dir) }
