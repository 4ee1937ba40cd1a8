// SPDX-License-Identifier: Apache-2.0

extension Result {
    /// The error; nil for a success.
    package var error: Failure? { if case .failure(let error) = self { error } else { nil } }

    /// Returns the outcome of an asynchronous closure.
    nonisolated(nonsending) package static func of(
        _ body: nonisolated(nonsending) () async throws(Failure) -> Success
    ) async -> Self {
        do throws(Failure) {
            return .success(try await body())
        } catch {
            return .failure(error)
        }
    }
}
