package driver

import (
	"time"

	"millwright/provider"
)

// Observer receives the result of each call of a driver's method: the name of the method, the code of the result (OK
// for a success), and the duration. An Observer is called once per method call, even if the method sends no request or
// several requests, for example one per page of a list. An Observer must be safe for concurrent use.
type Observer func(method string, code provider.Code, took time.Duration)

// SetObserver sets the Observer of all later calls. SetObserver must be called before the first call of the Provider.
func (p *Provider) SetObserver(observer Observer) { p.observer = observer }

// callWithObserver calls a method of the driver and passes the result to the Observer.
func callWithObserver[T any](p *Provider, method string, call func() (T, error)) (T, error) {
	if p.observer == nil {
		return call()
	}
	began := time.Now()
	answer, err := call()
	p.observer(method, provider.CodeOfError(err), time.Since(began))
	return answer, err
}
