package component

import (
	"slices"
	"time"
)

// Plan is the supervisor's input, with everything that the supervisor needs to run a stack.
type Plan struct {
	Dir                  string              `json:"dir"`
	Repo                 string              `json:"repo"`
	Components           []string            `json:"components"`
	Ports                map[string]int      `json:"ports"`
	BinaryPaths          map[string]string   `json:"binaries"`          // path of the binary, by component name
	KubernetesBinaryPath string              `json:"kubectl,omitempty"` // path of the multi-call binary; empty: no API server
	Env                  map[string][]string `json:"env,omitempty"`
	Args                 map[string][]string `json:"args,omitempty"`
	UseLongLeases        bool                `json:"quiet,omitempty"`
	// Lease duration of a virtual Node; if zero, UseLongLeases selects the duration
	NodeLeaseDuration time.Duration `json:"nodeLease,omitempty"`
	StartTimeout      time.Duration `json:"timeout"`
	// RequireTemporalTLS makes Temporal's frontend require certificates of its clients.
	RequireTemporalTLS bool `json:"temporalTLS,omitempty"`
	// ExtraComponents describe components that are not in the component table. The field Components also contains the
	// names of the extras to start.
	ExtraComponents []ExtraComponent `json:"extras,omitempty"`
	// ManifestFolders are folders with objects that bootstrap applies in addition to Millwright's objects.
	ManifestFolders []string `json:"manifests,omitempty"`
	// ClusterAPIFolder is the folder of build.ClusterAPIProgramsFolder; empty: the stack has no Cluster API.
	ClusterAPIFolder string `json:"clusterAPI,omitempty"`
}

// findExtraComponent returns the extra with the name; false if the plan has no such extra.
func (p Plan) findExtraComponent(name string) (ExtraComponent, bool) {
	i := slices.IndexFunc(p.ExtraComponents, func(e ExtraComponent) bool { return e.Name == name })
	if i < 0 {
		return ExtraComponent{}, false
	}
	return p.ExtraComponents[i], true
}

// StackFolder returns the folder of the stack.
func (p Plan) StackFolder() StackFolder { return StackFolder(p.Dir) }
