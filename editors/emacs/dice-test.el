;;; dice-test.el --- Unit tests of dice.el  -*- lexical-binding: t; -*-

;;; Code:

(require 'ert)
(require 'dice)

(defconst dice-test-tokens
  '((:text "const" :step 0 :block 0) (:text " int" :step 1 :block 0)
    (:text " k" :step 0 :block 1) (:text ";" :step 0 :block 1))
  "A trace of two blocks, of two passes and one.")

(ert-deftest dice-trace-counts-the-passes-of-all-blocks ()
  (should (= 3 (cdr (dice-trace-passes dice-test-tokens)))))

(ert-deftest dice-trace-masks-what-is-not-settled ()
  (should (equal (mapcar (lambda (pass) (dice-trace-text dice-test-tokens pass)) '(0 1 2 3))
                 '("" "const ___" "const int" "const int k;"))))

(ert-deftest dice-settings-are-only-what-was-changed ()
  (should-not (dice--settings))
  (let ((dice-candidates 4) (dice-code-lens nil) (dice-trusted 'no))
    (should (equal (dice--settings) '(:trusted :json-false :candidates 4 :codeLens :json-false)))))

(ert-deftest dice-ghost-is-taken-by-word-by-line-and-whole ()
  (with-temp-buffer
    (dice--ghost-show '("y[i] = x;\n  z = 2;\n") 0)
    (dice-ghost-accept-word)
    (should (equal (buffer-string) "y"))
    (dice-ghost-accept-word)
    (should (equal (buffer-string) "y["))
    (dice-ghost-accept-line)
    (should (equal (buffer-string) "y[i] = x;"))
    (dice-ghost-accept-line)
    (should (equal (buffer-string) "y[i] = x;\n  z = 2;"))
    (should (equal (dice-ghost-text) "\n"))
    (dice-ghost-accept)
    (should (equal (buffer-string) "y[i] = x;\n  z = 2;\n"))
    (should-not (dice-ghost-text))
    (should-not dice--ghost-shown-mode)))

(ert-deftest dice-ghost-follows-what-is-typed ()
  (with-temp-buffer
    (dice--ghost-show '("abc") 0)
    (insert "a")
    (should (dice--ghost-follow))
    (should (equal (dice-ghost-text) "bc"))
    (insert "x")
    (should-not (dice--ghost-follow))))

(ert-deftest dice-ghost-shows-the-next-one ()
  (with-temp-buffer
    (dice--ghost-show '("one" "two") 0)
    (dice-ghost-next)
    (should (equal (dice-ghost-text) "two"))
    (dice-ghost-next)
    (should (equal (dice-ghost-text) "one"))
    (dice-ghost-dismiss)
    (should-not (dice-ghost-text))))

(ert-deftest dice-diff-has-hunks-only ()
  (should (equal (dice--diff "a\nb\n" "a\nc\n") "@@ -1,2 +1,2 @@\n a\n-b\n+c\n")))

(ert-deftest dice-without-a-server-is-an-error-for-the-user ()
  (with-temp-buffer
    (should-error (dice-find-faster) :type 'user-error)))

;;; dice-test.el ends here
