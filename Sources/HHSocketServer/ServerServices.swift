// SPDX-License-Identifier: Apache-2.0
/// The work that all connections of a server have done in turn: authentications, kept answers, blocking handlers.
final class ServerServices: Sendable {
    let authentications: Authentications
    let idempotentAnswers: IdempotentAnswers
    let threads: BlockingThreads

    init(_ configuration: ServerConfiguration) {
        self.authentications = Authentications(configuration.hello)
        self.idempotentAnswers = IdempotentAnswers(configuration.hello.idempotency, time: configuration.time)
        self.threads = BlockingThreads(count: configuration.blockingThreads)
    }
}
