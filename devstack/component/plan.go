package component

import (
	"slices"
	"time"
)

// Plan is the supervisor's input, with everything that the supervisor needs to run a stack.
type Plan struct {
	Dir              string              `json:"dir"`
	Repo             string              `json:"repo"`
	Components       []string            `json:"components"`
	Ports            map[string]int      `json:"ports"`
	Binaries         map[string]string   `json:"binaries"`          // path of the binary, by component name
	KubernetesBinary string              `json:"kubectl,omitempty"` // path of the multi-call binary; empty: no API server
	Env              map[string][]string `json:"env,omitempty"`
	Args             map[string][]string `json:"args,omitempty"`
	UseLongLeases    bool                `json:"quiet,omitempty"`
	// Lease duration of a virtual Node; if zero, Quiet selects the duration
	NodeLeaseDuration time.Duration `json:"nodeLease,omitempty"`
	Timeout           time.Duration `json:"timeout"`
	// RequireTemporalTLS makes Temporal's frontend require certificates of its clients.
	RequireTemporalTLS bool `json:"temporalTLS,omitempty"`
	// Extras describe components that are not in the component table. The field Components also contains the names of
	// the extras to start.
	Extras []ExtraComponent `json:"extras,omitempty"`
	// ManifestFolders are folders with objects that bootstrap applies in addition to Millwright's objects.
	ManifestFolders []string `json:"manifests,omitempty"`
	// ClusterAPIFolder is the folder of build.ClusterAPIPrograms; empty: the stack has no Cluster API.
	ClusterAPIFolder string `json:"clusterAPI,omitempty"`
}

// findExtra returns the extra with the name; false if the plan has no such extra.
func (p Plan) findExtra(name string) (ExtraComponent, bool) {
	i := slices.IndexFunc(p.Extras, func(e ExtraComponent) bool { return e.Name == name })
	if i < 0 {
		return ExtraComponent{}, false
	}
	return p.Extras[i], true
}

// Layout returns the folder of the stack.
func (p Plan) Layout() Layout { return Layout(p.Dir) }
