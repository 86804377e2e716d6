package virtual

// NewOverTransport returns a Provider that reaches the virtualcloud through the given http.RoundTripper.
var NewOverTransport = newWithTransport
