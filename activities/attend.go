package activities

import "millwright/observe"

// cares is of what a drain wants to be told. It is never changed, only replaced.
type cares struct {
	namespaces map[string]bool // whose budgets
	volumes    map[string]bool // attached to whichever node
}

// attend wants to be told of what the pods that are known have to do with. It has to come before caches are read that it is
// about: what changes later is told then, and what changed before is in the caches.
func (e *emptying) attend() {
	of := &cares{namespaces: map[string]bool{}, volumes: map[string]bool{}}
	for _, pod := range e.pods {
		of.namespaces[pod.Namespace] = true
	}
	for _, names := range e.volumes {
		for _, name := range names {
			of.volumes[name] = true
		}
	}
	for _, d := range e.Departed {
		for _, name := range d.Pod.Volumes {
			of.volumes[name] = true
		}
	}
	e.matters.Store(of)
}

func (e *emptying) concerns() observe.Concerns {
	return observe.Concerns{
		Budget:     func(namespace string) bool { return e.matters.Load().namespaces[namespace] },
		Attachment: func(node, volume string) bool { return node == e.in.NodeName || e.matters.Load().volumes[volume] },
	}
}
