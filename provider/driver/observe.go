package driver

import (
	"time"

	"millwright/provider"
)

// Observer receives the result of each call of a driver's method: the name of the method, the code of the answer (OK
// for a success), and the duration. It receives one result for each call, also if the method sends several requests,
// such as for the pages of a list, or no request. Many goroutines call it at the same time.
type Observer func(method string, code provider.Code, took time.Duration)

// Observe sets the observer of all later requests. Call it before the first call of the Provider.
func (p *Provider) Observe(observer Observer) { p.observer = observer }

// observed calls a method of the driver, and passes the result to the observer.
func observed[T any](p *Provider, method string, call func() (T, error)) (T, error) {
	if p.observer == nil {
		return call()
	}
	began := time.Now()
	answer, err := call()
	p.observer(method, provider.CodeOf(err), time.Since(began))
	return answer, err
}
