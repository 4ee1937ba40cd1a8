// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.

import Foundation
import HHSocketRPC

/// The user's access token. A new one is fetched only once, even for concurrent requests.
package actor SessionTokens {
    package struct Token: Hashable, Sendable {
        package var text: String
        package var expires: Date

        package init(_ text: String, expires: Date) {
            self.text = text
            self.expires = expires
        }
    }

    private let fetch: @Sendable () async throws -> Token
    private var token: Token?
    /// The last token given to the calls; their next request gets another one.
    private var lastForCalls: Token?
    private var fetching: Task<Token, any Error>?

    /// - Parameters:
    ///   - saved: The token of the last run, from the keychain; nil for none.
    ///   - fetch: Gets a new one from the service at which the user signs in. Throws if the user must sign in again.
    package init(saved: Token? = nil, fetch: @escaping @Sendable () async throws -> Token) {
        self.token = saved
        self.fetch = fetch
    }

    /// The token for a new connection; a new one if the last expires within a minute.
    ///
    /// - Throws: A refusal that stops the client's attempts if there is no token: the user has to sign in.
    package func forConnection() async throws -> [UInt8] {
        do {
            return Array(try await self.valid().text.utf8)
        } catch {
            throw HandshakeRefusal(.stop, "there is no valid token", underlying: error)
        }
    }

    /// The token for calls. Requested before the first call, and when the server has rejected the previous token.
    ///
    /// - Throws: A `SocketError` with the code `noPermission` if there is none, which the calls then fail with.
    package func forCalls() async throws -> String {
        if self.lastForCalls != nil, self.token == self.lastForCalls { self.token = nil }
        do {
            let token = try await self.valid()
            self.lastForCalls = token
            return token.text
        } catch {
            throw SocketError(.noPermission, message: "there is no valid token", underlying: error)
        }
    }

    /// Forgets the token, which a server has rejected although it has not expired.
    package func invalidate() { self.token = nil }

    private func valid() async throws -> Token {
        if let token = self.token, token.expires.timeIntervalSinceNow > 60 { return token }
        let fetching = self.fetching ?? Task { try await self.fetched() }
        self.fetching = fetching
        return try await fetching.value
    }

    private func fetched() async throws -> Token {
        defer { self.fetching = nil }
        let token = try await self.fetch()
        self.token = token
        return token
    }
}
