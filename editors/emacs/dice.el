;;; dice.el --- Verified rewrites of CUDA kernels, by a model on this machine  -*- lexical-binding: t; -*-

;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1") (eglot "1.9"))
;; Keywords: languages, tools
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; An eglot client for dice-ls.  In a CUDA file it starts by itself; in a Python
;; file, and wherever another server is in use, M-x dice starts it.
;;
;;   M-x dice-find-faster   search for a faster version of the kernel at point
;;   M-x dice-preview       verified rewrites as diffs, applied with RET
;;   M-x dice-evidence      how it was tested and what became of each candidate
;;   M-x dice-menu          everything
;;
;; While ghost text is shown: M-l takes all of it, M-w a word, M-j a line, M-n
;; shows the next candidate, M-e hides it.

;;; Code:

(require 'cl-lib)
(require 'diff-mode)
(require 'eglot)
(require 'subr-x)
(require 'transient)

(defgroup dice nil
  "Verified rewrites of CUDA kernels."
  :group 'tools)

(defcustom dice-program "dice-ls"
  "The program that is started as the server.
One that is not on the `exec-path' is looked for in the environment that
`make install' makes in the repository of this package."
  :type 'string)

(defconst dice--environment
  (expand-file-name "../../.venv/" (file-name-directory (or load-file-name buffer-file-name default-directory)))
  "Where `make install' puts the server.")

(defcustom dice-ghost-delay 0.1
  "Seconds without a key before ghost text is asked for."
  :type 'number)

;; Settings of the server, written by editors/generate.py.

(defcustom dice-trusted nil
  "Whether the code of the open workspaces may be compiled and run.
Unset: asked once a workspace."
  :type '(choice (const :tag "unset" nil) (const :tag "yes" t) (const :tag "no" no)))

(defcustom dice-checkpoint nil
  "Full path of the folder of the model to use.
Unset: the one that comes with DICE."
  :type '(choice (const :tag "unset" nil) directory))

(defcustom dice-device "auto"
  "Where candidates are decoded, checked and timed."
  :type '(choice (const "auto") (const "cuda") (const "cpu")))

(defcustom dice-candidates 8
  "How many candidates one request decodes."
  :type 'integer)

(defcustom dice-search-on-save nil
  "Search for faster versions of the kernels that were edited, whenever a file
is saved."
  :type 'boolean)

(defcustom dice-diagnostics-on-save t
  "Compile the CUDA of a file when it is saved and show the compiler's errors
(trusted workspaces)."
  :type 'boolean)

(defcustom dice-diagnostics-delay-ms 250
  "Pause after typing before @dice annotations are checked, in milliseconds."
  :type 'integer)

(defcustom dice-code-lens t
  "Show a code lens over every kernel and module."
  :type 'boolean)

(defcustom dice-inlay-hints nil
  "Show the measured time and bandwidth of a kernel at its launches."
  :type 'boolean)

(defcustom dice-ghost-text "automatic"
  "Ghost text inside kernels: while typing, only when it is asked for, or
never."
  :type '(choice (const "automatic") (const "onRequest") (const "off")))

(defcustom dice-ghost-text-delay-ms 150
  "Pause after typing before ghost text is decoded, in milliseconds."
  :type 'integer)

(defcustom dice-ghost-text-tokens 40
  "Longest ghost text, in tokens of the model."
  :type 'integer)

(defcustom dice-work-on-battery nil
  "Search on save and decode ghost text while typing on battery power too."
  :type 'boolean)

(defconst dice--settings
  '((dice-trusted :trusted nil)
    (dice-checkpoint :checkpoint nil)
    (dice-device :device "auto")
    (dice-candidates :candidates 8)
    (dice-search-on-save :searchOnSave nil)
    (dice-diagnostics-on-save :diagnosticsOnSave t)
    (dice-diagnostics-delay-ms :diagnosticsDelayMs 250)
    (dice-code-lens :codeLens t)
    (dice-inlay-hints :inlayHints nil)
    (dice-ghost-text :ghostText "automatic")
    (dice-ghost-text-delay-ms :ghostTextDelayMs 150)
    (dice-ghost-text-tokens :ghostTextTokens 40)
    (dice-work-on-battery :workOnBattery nil))
  "Settings: variable, key of the server, the server's default.")

;; End of the generated settings.

(defface dice-ghost '((t :inherit shadow :slant italic)) "Ghost text.")
(defface dice-lens '((t :inherit shadow :height 0.9)) "Code lenses.")

;;;; The server

(defclass dice-server (eglot-lsp-server)
  ((status :initform nil :accessor dice-server-status))
  :documentation "A running dice-ls.")

(defun dice--settings ()
  "The settings that differ from the server's own, as a plist for JSON."
  (cl-loop for (symbol key default) in dice--settings
           for value = (symbol-value symbol)
           unless (equal value default)
           append (list key (pcase value ('no :json-false) ('nil :json-false) (_ value)))))

(cl-defmethod eglot-initialization-options ((_server dice-server))
  "Settings go to the server when it starts."
  (or (dice--settings) eglot--{}))

(cl-defmethod eglot-client-capabilities ((_server dice-server))
  "What is drawn here goes beyond what eglot says of itself."
  (let* ((all (copy-tree (cl-call-next-method)))
         (document (plist-get all :textDocument))
         (workspace (plist-get all :workspace)))
    (setq document (plist-put document :inlineCompletion '(:dynamicRegistration :json-false)))
    (setq document (plist-put document :codeLens '(:dynamicRegistration :json-false)))
    (setq workspace (plist-put workspace :codeLens '(:refreshSupport t)))
    (setq workspace (plist-put workspace :workspaceEdit
                               '(:documentChanges t :changeAnnotationSupport (:groupsOnLabel :json-false))))
    (plist-put (plist-put all :textDocument document) :workspace workspace)))

(cl-defmethod eglot-handle-notification ((server dice-server) (_method (eql dice/status)) &rest status)
  "Keep the STATUS of SERVER and show it in the mode line."
  (setf (dice-server-status server) status)
  (force-mode-line-update t))

(cl-defmethod eglot-handle-request ((server dice-server) (_method (eql workspace/codeLens/refresh)) &rest _)
  "Fetch the lenses of all buffers of SERVER again."
  (dolist (buffer (buffer-list))
    (with-current-buffer buffer
      (when (and (bound-and-true-p dice-mode) (eq (eglot-current-server) server))
        (dice--lenses-later))))
  nil)

(cl-defmethod eglot-handle-request
  ((_server dice-server) (_method (eql window/showMessageRequest)) &key message actions &allow-other-keys)
  "Ask what MESSAGE asks; unlike eglot's own, RET alone chooses none of ACTIONS."
  (let* ((titles (mapcar (lambda (one) (plist-get one :title)) actions))
         (chosen (completing-read (format "%s (%s) " message (string-join titles " / ")) titles nil t)))
    (unless (string-empty-p chosen) (list :title chosen))))

;;;###autoload
(define-derived-mode dice-cuda-mode c++-mode "CUDA"
  "C++ with CUDA, served by dice-ls.")

;;;###autoload
(add-to-list 'auto-mode-alist '("\\.cuh?\\'" . dice-cuda-mode))
;;;###autoload
(add-hook 'dice-cuda-mode-hook #'dice-ensure)

(defun dice--executable ()
  "The path of the server's program, or nil when it is not there."
  (or (executable-find dice-program)
      (let ((exec-path (mapcar (lambda (name) (expand-file-name name dice--environment)) '("bin" "Scripts"))))
        (executable-find dice-program))))

(defun dice--contact (&rest _)
  "How eglot starts the server."
  (list 'dice-server (or (dice--executable) dice-program)))

(defun dice--programs ()
  "An entry of `eglot-server-programs' for this buffer."
  (list (cons (if (derived-mode-p 'dice-cuda-mode) '(dice-cuda-mode :language-id "cuda-cpp") major-mode)
              #'dice--contact)))

;;;###autoload
(defun dice ()
  "Start dice-ls for this buffer's project, in place of another server."
  (interactive)
  (let ((eglot-server-programs (dice--programs)))
    (call-interactively #'eglot)))

;;;###autoload
(defun dice-ensure ()
  "Start dice-ls for this buffer if it visits a file and the program is there."
  (cond ((not buffer-file-name))
        ((dice--executable)
         (add-to-list 'eglot-server-programs (car (dice--programs)))
         (eglot-ensure))
        (t (message "%s is not installed: `make install' in the repository, or set dice-program" dice-program))))

(defun dice--server ()
  "The server of this buffer, or an error."
  (let ((server (eglot-current-server)))
    (unless (cl-typep server 'dice-server)
      (user-error "dice-ls does not serve this buffer: M-x dice"))
    server))

(defun dice--knows-p (server command)
  "Whether SERVER takes COMMAND; an older one may not."
  (let ((provider (plist-get (eglot--capabilities server) :executeCommandProvider)))
    (cl-find command (plist-get provider :commands) :test #'equal)))

(defun dice--place ()
  "The argument that names the code at point."
  (append (list :uri (plist-get (eglot--TextDocumentIdentifier) :uri)
                :position (eglot--pos-to-lsp-position))
          (when (use-region-p)
            (list :range (list :start (eglot--pos-to-lsp-position (region-beginning))
                               :end (eglot--pos-to-lsp-position (region-end)))))))

(defun dice--server-for (command)
  "The server of this buffer, in step with its text, if it takes COMMAND."
  (let ((server (dice--server)))
    (unless (dice--knows-p server command)
      (user-error "This dice-ls is too old for %s: update it" command))
    (eglot--signal-textDocument/didChange)
    server))

(defun dice--execution (command more)
  "What asks the server to run COMMAND for the code at point.
MORE is added to the argument."
  (list :command command :arguments (vector (append (dice--place) more))))

(defun dice--request (command &rest more)
  "Ask the server to run COMMAND for the code at point; return its answer.
MORE is added to the argument."
  (let ((server (dice--server-for command)))
    (condition-case failure
        (jsonrpc-request server :workspace/executeCommand (dice--execution command more))
      (jsonrpc-error
       (user-error "DICE: %s" (or (alist-get 'jsonrpc-error-message (cdr failure))
                                  (error-message-string failure)))))))

(defun dice--run (command)
  "Ask the server to run COMMAND for the code at point and do not wait.
Somebody who waited for the answer would leave the question about trust, which
may come first, when the answer comes."
  (jsonrpc-async-request
   (dice--server-for command) :workspace/executeCommand (dice--execution command nil)
   :success-fn #'ignore :timeout-fn #'ignore
   :error-fn (lambda (failure) (message "DICE: %s" (plist-get failure :message)))))

;;;; The mode line

(defun dice-status-text ()
  "The state of this buffer's server for the mode line."
  (let* ((server (eglot-current-server))
         (status (and (cl-typep server 'dice-server) (dice-server-status server)))
         (queue (or (plist-get status :queue) 0))
         (device (or (plist-get status :device) "")))
    (concat " DICE " (or (plist-get status :state) "idle")
            (unless (string-empty-p device) (concat ", " device))
            (when (> queue 0) (format ", %d in queue" queue)))))

;;;; Lenses

(defvar-local dice--lens-overlays nil)
(defvar-local dice--lens-timer nil)

(defun dice--lenses-later ()
  "Fetch the lenses of this buffer a moment from now."
  (when dice--lens-timer (cancel-timer dice--lens-timer))
  (let ((buffer (current-buffer)))
    (setq dice--lens-timer
          (run-at-time 0.2 nil (lambda ()
                                 (when (buffer-live-p buffer)
                                   (with-current-buffer buffer (dice--fetch-lenses))))))))

(defun dice--fetch-lenses ()
  "Ask for the lenses and draw them when they come."
  (when-let* ((server (eglot-current-server)) (buffer (current-buffer)))
    (when (and (bound-and-true-p dice-mode) (cl-typep server 'dice-server)
               (plist-member (eglot--capabilities server) :codeLensProvider))
      (eglot--signal-textDocument/didChange)
      (jsonrpc-async-request
       server :textDocument/codeLens (list :textDocument (eglot--TextDocumentIdentifier))
       :success-fn (lambda (lenses)
                     (when (buffer-live-p buffer)
                       (with-current-buffer buffer (dice--draw-lenses lenses))))
       :error-fn #'ignore :timeout-fn #'ignore))))

(defun dice--draw-lenses (lenses)
  "Put LENSES above the lines they belong to."
  (mapc #'delete-overlay dice--lens-overlays)
  (setq dice--lens-overlays
        (save-excursion
          (save-restriction
            (widen)
            (mapcar #'dice--draw-lens (append lenses nil))))))

(defun dice--draw-lens (lens)
  "An overlay for LENS."
  (goto-char (eglot--lsp-position-to-point (plist-get (plist-get lens :range) :start)))
  (let* ((indent (make-string (current-indentation) ?\s))
         (overlay (make-overlay (line-beginning-position) (line-beginning-position)))
         (command (plist-get lens :command)))
    (overlay-put overlay 'dice-command command)
    (overlay-put overlay 'before-string
                 (concat indent (propertize (plist-get command :title) 'face 'dice-lens) "\n"))
    overlay))

(defun dice-lens-titles ()
  "The titles of the lenses that are drawn."
  (mapcar (lambda (overlay) (plist-get (overlay-get overlay 'dice-command) :title)) dice--lens-overlays))

;;;; Ghost text

(defvar-local dice--ghost nil
  "What is shown: a plist of :items, :index, :overlay, and :tick and :point.")
(defvar-local dice--ghost-timer nil)
(defvar-local dice--ghost-request nil)
(defvar-local dice--ghost-tick nil)

(defvar dice-ghost-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "M-l") #'dice-ghost-accept)
    (define-key map (kbd "M-w") #'dice-ghost-accept-word)
    (define-key map (kbd "M-j") #'dice-ghost-accept-line)
    (define-key map (kbd "M-n") #'dice-ghost-next)
    (define-key map (kbd "M-e") #'dice-ghost-dismiss)
    map)
  "Keys while ghost text is shown.")

(define-minor-mode dice--ghost-shown-mode
  "On while ghost text is shown."
  :keymap dice-ghost-map)

(defun dice-ghost-text ()
  "The ghost text that is shown, or nil."
  (when dice--ghost
    (nth (plist-get dice--ghost :index) (plist-get dice--ghost :items))))

(defun dice--ghost-show (items index)
  "Show the INDEXth of ITEMS at point."
  (dice--ghost-clear)
  (let ((overlay (make-overlay (point) (point)))
        (text (propertize (nth index items) 'face 'dice-ghost)))
    (put-text-property 0 1 'cursor t text)
    (overlay-put overlay 'after-string text)
    (setq dice--ghost (list :items items :index index :overlay overlay
                            :tick (buffer-chars-modified-tick) :point (point)))
    (dice--ghost-shown-mode 1)))

(defun dice--ghost-clear ()
  "Hide the ghost text."
  (when dice--ghost
    (delete-overlay (plist-get dice--ghost :overlay))
    (setq dice--ghost nil)
    (dice--ghost-shown-mode -1)))

(defun dice--ghost-cancel ()
  "Give up what was asked for and has not come."
  (when dice--ghost-timer
    (cancel-timer dice--ghost-timer)
    (setq dice--ghost-timer nil))
  (when dice--ghost-request
    (when-let ((server (eglot-current-server)))
      (jsonrpc-notify server :$/cancelRequest (list :id dice--ghost-request)))
    (setq dice--ghost-request nil)))

(defun dice--ghost-at-point (item)
  "The text of ITEM after point.
It is nil when ITEM does not begin with what stands before point."
  (let* ((given (plist-get item :insertText))
         (text (replace-regexp-in-string "\r\n" "\n" (if (stringp given) given (plist-get given :value))))
         (range (plist-get item :range))
         (start (if range (eglot--lsp-position-to-point (plist-get range :start)) (point)))
         (typed (and (<= start (point)) (buffer-substring-no-properties start (point)))))
    (when (and typed (string-prefix-p typed text) (> (length text) (length typed)))
      (substring text (length typed)))))

(defun dice--ghost-ask (kind)
  "Ask for ghost text at point; KIND is 1 when the user asks, 2 while typing."
  (dice--ghost-cancel)
  (let* ((server (eglot-current-server)) (buffer (current-buffer)))
    (when (and (cl-typep server 'dice-server)
               (plist-member (eglot--capabilities server) :inlineCompletionProvider))
      (eglot--signal-textDocument/didChange)
      (let ((tick (buffer-chars-modified-tick)) (where (point)))
        (setq dice--ghost-request
              (car (jsonrpc-async-request
                    server :textDocument/inlineCompletion
                    (append (eglot--TextDocumentPositionParams) (list :context (list :triggerKind kind)))
                    :success-fn (lambda (answer)
                                  (when (buffer-live-p buffer)
                                    (with-current-buffer buffer
                                      (setq dice--ghost-request nil)
                                      (when (and (= tick (buffer-chars-modified-tick)) (= where (point)))
                                        (dice--ghost-answered answer)))))
                    :error-fn #'ignore :timeout-fn #'ignore :timeout 30)))))))

(defun dice--ghost-answered (answer)
  "Show what is in ANSWER."
  (let* ((items (append (if (vectorp answer) answer (plist-get answer :items)) nil))
         (texts (delq nil (mapcar #'dice--ghost-at-point items))))
    (when texts (dice--ghost-show texts 0))))

(defun dice--ghost-follow ()
  "Keep the ghost text if what was typed is its beginning; return whether it stays."
  (let* ((was (plist-get dice--ghost :point))
         (text (dice-ghost-text))
         (typed (and (> (point) was) (buffer-substring-no-properties was (point)))))
    (cond ((and (= was (point)) (= (plist-get dice--ghost :tick) (buffer-chars-modified-tick))))
          ((and typed (string-prefix-p typed text) (< (length typed) (length text)))
           (dice--ghost-show (list (substring text (length typed))) 0)
           t))))

(defun dice--ghost-after-command ()
  "Follow what was typed, and ask again after a pause."
  (let ((changed (not (eql dice--ghost-tick (buffer-chars-modified-tick)))))
    (setq dice--ghost-tick (buffer-chars-modified-tick))
    (unless (and dice--ghost (dice--ghost-follow))
      (dice--ghost-clear)
      (dice--ghost-cancel)
      (when (and changed (string-match-p "self-insert\\|electric\\|newline\\|delete-backward\\|delete-char"
                                         (format "%s" this-command)))
        (let ((buffer (current-buffer)))
          (setq dice--ghost-timer
                (run-at-time dice-ghost-delay nil
                             (lambda ()
                               (when (eq buffer (current-buffer))
                                 (setq dice--ghost-timer nil)
                                 (dice--ghost-ask 2))))))))))

(defun dice--ghost-take (length)
  "Insert the first LENGTH characters of the ghost text."
  (let* ((text (dice-ghost-text)) (rest (substring text length)))
    (dice--ghost-clear)
    (undo-boundary)
    (insert (substring text 0 length))
    (setq dice--ghost-tick (buffer-chars-modified-tick))
    (unless (string-empty-p rest) (dice--ghost-show (list rest) 0))))

(defun dice-ghost-accept ()
  "Insert all of the ghost text."
  (interactive)
  (when-let ((text (dice-ghost-text))) (dice--ghost-take (length text))))

(defun dice-ghost-accept-word ()
  "Insert one word of the ghost text."
  (interactive)
  (when-let ((text (dice-ghost-text)))
    (string-match "\\`[ \t\n]*\\(?:[[:alnum:]_]+\\|[^[:alnum:]_ \t\n]*\\)" text)
    (dice--ghost-take (match-end 0))))

(defun dice-ghost-accept-line ()
  "Insert one line of the ghost text."
  (interactive)
  (when-let ((text (dice-ghost-text)))
    (string-match "\\`\n?[^\n]*" text)
    (dice--ghost-take (match-end 0))))

(defun dice-ghost-next ()
  "Show the next ghost text."
  (interactive)
  (when dice--ghost
    (let ((items (plist-get dice--ghost :items)))
      (dice--ghost-show items (mod (1+ (plist-get dice--ghost :index)) (length items))))))

(defun dice-ghost-dismiss ()
  "Hide the ghost text."
  (interactive)
  (dice--ghost-clear)
  (dice--ghost-cancel))

(defun dice-ghost-request ()
  "Ask for ghost text at point."
  (interactive)
  (dice--server)
  (dice--ghost-ask 1))

;;;; Rewrites

(defvar-local dice--preview nil
  "What is previewed: a plist of :buffer, :tick, :offers and :index.")

(defun dice--offers ()
  "The verified rewrites at point: code actions with their edits."
  (let* ((server (dice--server))
         (here (eglot--pos-to-lsp-position))
         (found (jsonrpc-request
                 server :textDocument/codeAction
                 (list :textDocument (eglot--TextDocumentIdentifier)
                       :range (list :start here :end here)
                       :context (list :diagnostics [] :only ["refactor.rewrite"])))))
    (cl-loop for action across (or found [])
             for whole = (cond ((plist-get action :edit) action)
                               ((plist-get action :disabled) nil)
                               ((plist-get action :data)
                                (jsonrpc-request server :codeAction/resolve action)))
             when (plist-get whole :edit) collect whole)))

(defun dice--edits (action)
  "The text edits of ACTION for this buffer."
  (let* ((edit (plist-get action :edit))
         (uri (plist-get (eglot--TextDocumentIdentifier) :uri))
         (same (lambda (other) (string= (url-unhex-string other) (url-unhex-string uri)))))
    (or (cl-loop for change across (or (plist-get edit :documentChanges) [])
                 when (and (plist-get change :textDocument)
                           (funcall same (plist-get (plist-get change :textDocument) :uri)))
                 return (plist-get change :edits))
        (cl-loop for (key edits) on (plist-get edit :changes) by #'cddr
                 when (funcall same (substring (symbol-name key) 1)) return edits))))

(defun dice--applied (edits)
  "The text of this buffer after EDITS."
  (let ((text (buffer-substring-no-properties (point-min) (point-max))) (places nil))
    (cl-loop for edit across edits
             for range = (plist-get edit :range)
             do (push (list (eglot--lsp-position-to-point (plist-get range :start))
                            (eglot--lsp-position-to-point (plist-get range :end))
                            (plist-get edit :newText))
                      places))
    (with-temp-buffer
      (insert text)
      (dolist (place (sort places (lambda (a b) (> (car a) (car b)))))
        (goto-char (nth 0 place))
        (delete-region (nth 0 place) (nth 1 place))
        (insert (replace-regexp-in-string "\r\n" "\n" (nth 2 place))))
      (buffer-string))))

(defun dice--diff (before after)
  "The unified diff of two texts, without its head."
  (let ((old (make-temp-file "dice")) (new (make-temp-file "dice")))
    (unwind-protect
        (progn
          (let ((coding-system-for-write 'utf-8-unix))
            (write-region before nil old nil 'quiet)
            (write-region after nil new nil 'quiet))
          (with-temp-buffer
            (call-process "diff" nil t nil "-u" old new)
            (goto-char (point-min))
            (if (search-forward "\n@@" nil t)
                (buffer-substring (1+ (match-beginning 0)) (point-max))
              "")))
      (delete-file old)
      (delete-file new))))

(defun dice--evidence-of (action)
  "The words of ACTION's change annotation."
  (let ((notes (plist-get (plist-get action :edit) :changeAnnotations)))
    (or (plist-get (cadr notes) :description) "")))

(defvar dice-preview-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'dice-preview-apply)
    (define-key map (kbd "n") #'dice-preview-next)
    (define-key map (kbd "q") #'quit-window)
    map))

;; Not derived from `diff-mode', whose RET goes to a file.
(define-derived-mode dice-preview-mode special-mode "DICE preview"
  "A verified rewrite as a diff: RET applies it, n shows the next one, q leaves."
  (setq font-lock-defaults '(diff-font-lock-keywords t)))

(defun dice-preview ()
  "Show the verified rewrites of the code at point."
  (interactive)
  (let ((offers (dice--offers)))
    (unless offers
      (user-error "No verified rewrite here; M-x dice-find-faster searches for one"))
    (dice--preview-show (current-buffer) offers 0)))

(defun dice--preview-show (buffer offers index)
  "Show the INDEXth of OFFERS for BUFFER."
  (let* ((action (nth index offers))
         (tick (buffer-chars-modified-tick buffer))
         (diff (with-current-buffer buffer
                 (dice--diff (buffer-substring-no-properties (point-min) (point-max))
                             (dice--applied (dice--edits action))))))
    (with-current-buffer (get-buffer-create "*dice preview*")
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert (plist-get action :title) "\n" (dice--evidence-of action) "\n"
                (format "%d of %d.  RET applies it, n shows the next one, q leaves.\n\n" (1+ index) (length offers))
                diff)
        (goto-char (point-min)))
      (dice-preview-mode)
      (setq dice--preview (list :buffer buffer :tick tick :offers offers :index index))
      (pop-to-buffer (current-buffer)))))

(defun dice-preview-next ()
  "Show the next verified rewrite."
  (interactive)
  (let ((offers (plist-get dice--preview :offers)))
    (dice--preview-show (plist-get dice--preview :buffer) offers
                        (mod (1+ (plist-get dice--preview :index)) (length offers)))))

(defun dice-preview-apply ()
  "Apply the rewrite that is shown; one undo takes it back."
  (interactive)
  (let* ((preview dice--preview)
         (buffer (plist-get preview :buffer))
         (action (nth (plist-get preview :index) (plist-get preview :offers))))
    (unless (and (buffer-live-p buffer)
                 (= (plist-get preview :tick) (buffer-chars-modified-tick buffer)))
      (user-error "The buffer was edited since this preview; nothing was applied"))
    (quit-window)
    (with-current-buffer buffer
      (undo-boundary)
      (let ((text (dice--applied (dice--edits action))) (target (generate-new-buffer " *dice*")))
        (unwind-protect
            (progn
              (with-current-buffer target (insert text))
              (replace-buffer-contents target))
          (kill-buffer target)))
      (undo-boundary)
      (eglot--signal-textDocument/didChange))))

;;;; Evidence and trace

(defvar dice-evidence-keywords
  '(("\\(\\*\\*\\)\\(.+?\\)\\(\\*\\*\\)" (1 '(face nil invisible t)) (2 'bold) (3 '(face nil invisible t)))
    ("\\(`\\)\\([^`\n]+\\)\\(`\\)"
     (1 '(face nil invisible t)) (2 'font-lock-constant-face) (3 '(face nil invisible t))))
  "Markdown as it is meant, without its signs.")

(define-derived-mode dice-evidence-mode special-mode "DICE evidence"
  "The evidence of one kernel or module."
  (setq font-lock-defaults '(dice-evidence-keywords t)
        font-lock-extra-managed-props '(invisible))
  (visual-line-mode 1))

(defun dice--show-text (name mode text)
  "Show TEXT in the buffer NAME in MODE; return the buffer."
  (with-current-buffer (get-buffer-create name)
    (funcall mode)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert text)
      (goto-char (point-min)))
    (display-buffer (current-buffer))
    (current-buffer)))

(defun dice-evidence ()
  "Show how the code at point was tested and what became of each candidate."
  (interactive)
  (let ((evidence (dice--request "dice.showEvidence")))
    (dice--show-text "*dice evidence*" #'dice-evidence-mode (plist-get evidence :markdown))))

;; As a code action, too, the evidence is shown in a buffer of ours.
(cl-defmethod eglot-execute-command ((server dice-server) (_command (eql dice.showEvidence)) arguments)
  "Show the evidence that ARGUMENTS name."
  (let* ((place (cl-loop for (key value) on (elt arguments 0) by #'cddr
                         unless (eq key :show) append (list key value)))
         (params (list :command "dice.showEvidence" :arguments (vector place)))
         (evidence (jsonrpc-request server :workspace/executeCommand params)))
    (dice--show-text "*dice evidence*" #'dice-evidence-mode (plist-get evidence :markdown))))

(defvar-local dice--trace nil "The trace and the pass that is shown.")

(defvar dice-trace-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "<right>") #'dice-trace-forward)
    (define-key map (kbd "<left>") #'dice-trace-back)
    map))

(define-derived-mode dice-trace-mode special-mode "DICE trace"
  "How a candidate came out of noise: left and right move by one forward pass.")

(defun dice-trace-passes (tokens)
  "The first pass of each block of TOKENS, and the number of all passes."
  (let ((passes (make-hash-table)) (first (make-hash-table)) (sum 0))
    (mapc (lambda (token)
            (let ((block (plist-get token :block)))
              (puthash block (max (gethash block passes 0) (1+ (plist-get token :step))) passes)))
          tokens)
    (dolist (block (sort (hash-table-keys passes) #'<))
      (puthash block sum first)
      (setq sum (+ sum (gethash block passes))))
    (cons first sum)))

(defun dice-trace-text (tokens pass)
  "The text of TOKENS after PASS forward passes."
  (let ((first (car (dice-trace-passes tokens))))
    (mapconcat
     (lambda (token)
       (let* ((text (plist-get token :text))
              (start (gethash (plist-get token :block) first)))
         (cond ((< (+ start (plist-get token :step)) pass) text)
               ((< start pass) (replace-regexp-in-string "[^ \t\n]" "_" text))
               (t ""))))
     tokens "")))

(defun dice--trace-draw ()
  "Draw the trace at its pass."
  (pcase-let* ((`(,tokens . ,pass) dice--trace)
               (all (cdr (dice-trace-passes tokens)))
               (inhibit-read-only t))
    (erase-buffer)
    (insert (format "pass %d of %d; left and right move\n\n" pass all) (dice-trace-text tokens pass))
    (goto-char (point-min))))

(defun dice-trace-forward (&optional count)
  "Go on by COUNT passes."
  (interactive "p")
  (let ((all (cdr (dice-trace-passes (car dice--trace)))))
    (setcdr dice--trace (max 0 (min all (+ (cdr dice--trace) (or count 1)))))
    (dice--trace-draw)))

(defun dice-trace-back (&optional count)
  "Go back by COUNT passes."
  (interactive "p")
  (dice-trace-forward (- (or count 1))))

(defun dice-trace ()
  "Show how the best candidate at point came out of noise."
  (interactive)
  (let* ((trace (dice--request "dice.showTrace"))
         (tokens (append (plist-get trace :tokens) nil)))
    (with-current-buffer (dice--show-text "*dice trace*" #'dice-trace-mode "")
      (setq dice--trace (cons tokens (cdr (dice-trace-passes tokens))))
      (dice--trace-draw))))

;;;; Commands

(defmacro dice--define (name command doc)
  "Define NAME, which runs COMMAND of the server for the code at point.
DOC says what it does."
  `(defun ,name () ,doc (interactive) (dice--run ,command)))

(dice--define dice-find-faster "dice.findFaster" "Search for a faster version of the code at point.")
(dice--define dice-check-kernel "dice.checkKernel" "Check the kernel at point against its reference.")
(dice--define dice-cancel "dice.cancel" "Cancel the search for the code at point.")
(dice--define dice-insert-annotation "dice.insertAnnotation" "Insert a @dice comment above the kernel at point.")
(dice--define dice-pause "dice.pause" "Pause the engine's work.")
(dice--define dice-resume "dice.resume" "Go on with the engine's work.")
(dice--define dice-restart-engine "dice.restartEngine" "Restart the engine.")
(dice--define dice-trust-workspace "dice.trustWorkspace" "Let the code of this project be compiled and run.")
(dice--define dice-untrust-workspace "dice.untrustWorkspace" "Do not let the code of this project be run.")

(defun dice-restart ()
  "Restart the language server of this buffer."
  (interactive)
  (eglot-reconnect (dice--server) t))

(transient-define-prefix dice-menu ()
  "What DICE can do here."
  [["Code at point"
    ("f" "find a faster version" dice-find-faster)
    ("p" "preview the rewrites" dice-preview)
    ("e" "evidence" dice-evidence)
    ("t" "denoising trace" dice-trace)
    ("k" "check the kernel" dice-check-kernel)
    ("a" "insert @dice" dice-insert-annotation)
    ("c" "cancel" dice-cancel)]
   ["Engine"
    ("P" "pause" dice-pause)
    ("R" "resume" dice-resume)
    ("E" "restart the engine" dice-restart-engine)
    ("S" "restart the server" dice-restart)
    ("T" "trust this project" dice-trust-workspace)
    ("U" "stop trusting it" dice-untrust-workspace)]])

;;;; The mode

(defvar dice-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c d") #'dice-menu)
    map))

;;;###autoload
(define-minor-mode dice-mode
  "Lenses, ghost text and commands of a buffer that dice-ls serves."
  :lighter (:eval (dice-status-text))
  :keymap dice-mode-map
  (if dice-mode
      (progn
        (add-hook 'post-command-hook #'dice--ghost-after-command nil t)
        (add-hook 'after-change-functions #'dice--changed nil t)
        (setq dice--ghost-tick (buffer-chars-modified-tick))
        (dice--lenses-later))
    (remove-hook 'post-command-hook #'dice--ghost-after-command t)
    (remove-hook 'after-change-functions #'dice--changed t)
    (dice-ghost-dismiss)
    (mapc #'delete-overlay dice--lens-overlays)
    (setq dice--lens-overlays nil)))

(defun dice--changed (&rest _)
  "The text has changed: so may the lenses."
  (dice--lenses-later))

(defun dice--managed ()
  "Follow eglot: `dice-mode' is on while dice-ls serves the buffer."
  (dice-mode (if (and (eglot-managed-p) (cl-typep (eglot-current-server) 'dice-server)) 1 -1)))

(add-hook 'eglot-managed-mode-hook #'dice--managed)

(provide 'dice)
;;; dice.el ends here
