package activities

import "millwright/observe"

// interest filters which events of budgets and volume attachments reach a drain. It is immutable: a new one replaces it.
type interest struct {
	namespaces map[string]bool // of the budgets
	volumes    map[string]bool // attached to any node
}

// subscribe updates the filter to the namespaces and volumes of the current pods. Call it before reading the caches: a change
// after the call arrives as an event, and a change before the call is in the caches.
func (e *emptying) subscribe() {
	of := &interest{namespaces: map[string]bool{}, volumes: map[string]bool{}}
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
	e.interest.Store(of)
}

func (e *emptying) filter() observe.Concerns {
	return observe.Concerns{
		Budget:     func(namespace string) bool { return e.interest.Load().namespaces[namespace] },
		Attachment: func(node, volume string) bool { return node == e.in.NodeName || e.interest.Load().volumes[volume] },
	}
}
