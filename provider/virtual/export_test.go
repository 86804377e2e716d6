package virtual

// Over returns a Provider that reaches the virtualcloud through the given http.RoundTripper.
var Over = newWithTransport
