// SPDX-License-Identifier: Apache-2.0
/// Attempts at several servers at once: the first connection that is made wins, the others are closed.
public struct RacingPolicy: Hashable, Sendable {
    /// The head start of the current attempts before one more begins; by default that of Tencent Mars.
    package var stagger: Duration
    /// The number of attempts that may be in progress at once.
    package var maximumAttempts: Int

    /// - Parameters:
    ///   - stagger: The head start of the current attempts before one more begins; 2.5 s by default.
    ///   - maximumAttempts: The number of attempts that may be in progress at once; 3 by default, 1 at least.
    public init(stagger: Duration = .milliseconds(2_500), maximumAttempts: Int = 3) {
        self.stagger = stagger
        self.maximumAttempts = maximumAttempts
    }
}
