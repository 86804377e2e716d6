package virtual

// NewWithTransport returns a Provider that reaches the virtualcloud through the given http.RoundTripper.
var NewWithTransport = newWithTransport
