package component

import "debug/buildinfo"

// VersionsByComponent returns the version of each component, as its binary reports the version. Millwright's own
// components have no entry.
func VersionsByComponent(plan Plan) map[string]string {
	modules := map[string]string{
		Etcd:              "go.etcd.io/etcd/server/v3",
		APIServer:         "k8s.io/kubernetes",
		ControllerManager: "k8s.io/kubernetes",
		Scheduler:         "k8s.io/kubernetes",
		Kwok:              "sigs.k8s.io/kwok",
		Temporal:          "go.temporal.io/server",

		ClusterAPICore:         "sigs.k8s.io/cluster-api",
		ClusterAPIBootstrap:    "sigs.k8s.io/cluster-api",
		ClusterAPIControlPlane: "sigs.k8s.io/cluster-api",
		ClusterAPIDev:          "sigs.k8s.io/cluster-api/test",
	}
	found := map[string]string{}
	read := map[string]*buildinfo.BuildInfo{}
	for _, name := range plan.Components {
		module, binary := modules[name], plan.BinaryPaths[name]
		if module == "" {
			continue
		}
		if read[binary] == nil {
			info, err := buildinfo.ReadFile(binary)
			if err != nil {
				continue // a binary without build information can still run
			}
			read[binary] = info
		}
		for _, part := range append(read[binary].Deps, &read[binary].Main) {
			// Main has the version, because the module of a Cluster API program is the main module of its binary
			if part.Path == module {
				found[name] = part.Version
			}
		}
	}
	return found
}
