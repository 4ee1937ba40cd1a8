// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The conditions on which a request of one type reaches its handler. Shared by all connections of a server.
final class RouteRules: Sendable {
    /// The outermost first.
    let admissions: [any ServerAdmission]
    let observers: [any RefusalObserver]
    let maximumBodyLength: Int?
    /// The requests of the type that are in flight; nil if they are not counted.
    let inFlight: InFlightQuota?
    let timeout: TimeAmount?
    /// Nil where nothing is found out.
    let limiter: ConcurrencyLimiter?

    init(
        admissions: [any ServerAdmission] = [],
        observers: [any RefusalObserver] = [],
        limits: RouteLimits = RouteLimits()
    ) {
        self.admissions = admissions
        self.observers = observers
        self.maximumBodyLength = limits.maximumBodyLength
        self.inFlight = limits.maximumInFlight.map { InFlightQuota(maximum: $0) }
        self.timeout = limits.timeout.map { TimeAmount(clamping: $0) }
        self.limiter = limits.concurrency.map { ConcurrencyLimiter($0) }
    }

    /// Whether only the connection determines whether a synchronous handler runs.
    var isOpen: Bool { self.admissions.isEmpty && self.maximumBodyLength == nil }

    /// Whether a body of this length, compressed or not, is certainly too long.
    func excludes(length: Int, isCompressed: Bool) -> Bool {
        guard let maximum = self.maximumBodyLength else { return false }
        // Data that zlib cannot compress becomes slightly longer, by less than this.
        let (bound, overflows) = maximum.addingReportingOverflow(isCompressed ? 64 + maximum / 1_000 : 0)
        return !overflows && length > bound
    }

    /// Returns the status with which an admission refuses a request; nil if none does.
    func refusal(of header: @autoclosure () -> RequestHeader, _ session: ServerSession) -> Status? {
        guard !self.admissions.isEmpty else { return nil }
        let header = header()
        for admission in self.admissions {
            if case .refuse(let status) = admission.admit(header, session) { return status == .ok ? .unknown : status }
        }
        return nil
    }

    func refused(_ header: @autoclosure () -> RequestHeader, with status: Status, in session: ServerSession) {
        guard !self.observers.isEmpty else { return }
        let header = header()
        for observer in self.observers { observer.refused(header, with: status, in: session) }
    }
}
