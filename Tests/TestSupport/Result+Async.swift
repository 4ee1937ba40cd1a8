// SPDX-License-Identifier: Apache-2.0
extension Result where Failure == any Error {
    /// The result of `body`, so that started objects can be shut down before its error is thrown.
    package init(_ body: () async throws -> Success) async {
        do { self = .success(try await body()) } catch { self = .failure(error) }
    }
}
