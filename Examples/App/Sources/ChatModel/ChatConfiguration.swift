// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.

import HHSocketRPC

extension SocketClient.Configuration {
    /// The settings of the app's one client.
    ///
    /// - Parameter tls: Nil for a server on this machine.
    package static func chat(servers: [Endpoint], tls: ClientTLS?, tokens: SessionTokens) -> Self {
        var configuration = Self(servers: servers)
        configuration.socket.tls = tls
        // Authenticates the user on each new connection before anything else is sent.
        configuration.hello = HelloPolicy(isRequired: true) { try await tokens.forConnection() }
        // For a token that expires while the connection lasts: all refused calls get one new token, and are made
        // again.
        configuration.interceptors = [
            TokenInterceptor {
                try await tokens.forCalls()
            } apply: { token, request in
                request.metadata["token"] = token
            }
        ]
        // Repeats only what the server has not run, or may run twice.
        configuration.retryPolicy = RetryPolicy(maximumAttempts: 3)
        // In the background calls in flight may finish, and nothing else happens.
        configuration.socket.backgroundPolicy = .finishTasks
        return configuration
    }
}

extension ClientTLS {
    /// TLS with the keys of the app's servers: the one in use, and a spare that is kept offline.
    package static func pinned(_ pins: [String]) throws(SocketError) -> ClientTLS {
        var tls = ClientTLS()
        for pin in pins { tls.pins.insert(try PublicKeyPin(base64: pin)) }
        return tls
    }
}
