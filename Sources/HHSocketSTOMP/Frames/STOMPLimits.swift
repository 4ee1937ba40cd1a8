// SPDX-License-Identifier: Apache-2.0
/// The limits on frames. The sender refuses a frame beyond them; a received one ends the connection.
///
/// Lengths over 1 GiB count as 1 GiB, and negative numbers as 0.
package struct STOMPLimits: Hashable, Sendable {
    /// The largest number of headers of a frame; 1,024 by default.
    package var maximumHeaders = 1_024
    /// The largest length of a frame's command and headers together, in bytes, including line ends and the final blank
    /// line; 64 KiB by default.
    package var maximumHeaderLength = 65_536
    /// The largest length of a body, in bytes; 16 MiB by default.
    package var maximumBodyLength = 16_777_216

    /// The default limits.
    package init() {}

    /// The limits, clamped to what can be counted and held.
    var bounded: STOMPLimits {
        var limits = self
        limits.maximumHeaders = max(0, self.maximumHeaders)
        limits.maximumHeaderLength = min(max(0, self.maximumHeaderLength), 1 << 30)
        limits.maximumBodyLength = min(max(0, self.maximumBodyLength), 1 << 30)
        return limits
    }
}
